#include "forecast/plan/rank_digest.hpp"

#include <fmt/core.h>

#include "forecast/plan/parallel_section.hpp"
#include "forecast/plan/trainer_plan.hpp"

namespace stowage::forecast {

RankText rank_text(const inputs::Deck& deck, int stage) {
  const TrainerPlan run(rank_options(deck, described_data(deck), stage));
  RankText text{execution::text_of(run.layout()), {}};
  const auto add = [&](std::string name, const auto& planned) {
    text.programs.push_back({std::move(name), execution::text_of(planned.recorded.program),
                             execution::text_of(planned.plan)});
  };
  for (int i = 0; i < run.capacity_classes(); ++i)
    for (const auto& training : run.training(i))
      add(fmt::format("train, {} documents, class {}", training->recorded.shape.capacity, i),
          *training);
  for (const auto& evaluation : run.evaluation())
    add(fmt::format("evaluate, {} documents", evaluation->recorded.shape.capacity), *evaluation);
  if (const auto* exchange = run.ema_exchange()) add("exchange of averages", *exchange);
  if (const auto* norms = run.weight_norms()) add("norms of weights", *norms);
  return text;
}

std::string digest_text(const inputs::Deck& deck, int stage, bool ops) {
  const auto stages = inputs::read(deck, &ParallelConfig::pipeline);
  std::string text;
  for (int s = stage < 0 ? 0 : stage; s < (stage < 0 ? stages : stage + 1); ++s) {
    const RankText rank = rank_text(deck, s);
    text += fmt::format("stage {}/{}: layout {:016x}\n", s, stages, execution::digest(rank.layout));
    for (const RankText::Planned& planned : rank.programs) {
      text += fmt::format("{}: program {:016x} of {} ops, plan {:016x}\n", planned.name,
                          execution::digest(planned.program), planned.program.ops.size(),
                          execution::digest(planned.plan));
      if (!ops) continue;
      for (std::size_t i = 0; i < planned.program.ops.size(); ++i) {
        const execution::OpText& op = planned.program.ops[i];
        text += fmt::format("  op {} {} {:016x}\n    on {}\n    uses {}\n    costs {}\n", i,
                            op.name, execution::digest(op), op.place, op.uses, op.cost);
        if (!op.communication.empty()) text += fmt::format("    sends {}\n", op.communication);
      }
      for (const auto& [name, part] : planned.plan.parts())
        text += fmt::format("  {} {:016x}\n", name, execution::digest(part));
    }
  }
  return text;
}

}  // namespace stowage::forecast
