// A pipeline's timeline as a trace, with the copies of its ranks' plans.
#include <fmt/core.h>

#include <algorithm>

#include "drivers/common/planned_rank.hpp"
#include "drivers/plan/timeline.hpp"
#include "execution/error.hpp"
#include "offload/prediction.hpp"
#include "results/trace.hpp"

namespace stowage::drivers {
namespace {

using layers::Timeline;
using layers::Turn;

/// "forward of microbatch 3", "backward of microbatch 3, stage 2".
std::string pass_name(const Turn& turn, const layers::PipelineShape& shape, int rank) {
  const char* const pass = turn.pass == Turn::Pass::backward  ? "backward"
                           : turn.pass == Turn::Pass::weights ? "weights"
                                                              : "forward";
  std::string name = fmt::format("{} of microbatch {}", pass, turn.slot);
  if (shape.virtual_stages > 1) name += fmt::format(", stage {}", shape.stage(rank, turn.chunk));
  return name;
}

std::string exchange_name(const Turn& turn) {
  std::string name;
  for (const layers::Hop& hop : turn.hops)
    name +=
        fmt::format("{}{} {} of microbatch {}", name.empty() ? "" : ", ",
                    hop.sends ? "send" : "receive", hop.gradient ? "gradient" : "stream", hop.slot);
  return name;
}

/// Queues of a rank in the picture.
enum PictureQueue { kCompute, kExchange, kOut, kIn };

/// The passes of a plan, each by its scope in the order of the program, as its times predict them.
std::vector<Timeline::Span> planned_passes(const layers::TrainerPlan::Training& training,
                                           const offload::Prediction& prediction) {
  const execution::Program& program = training.recorded.program;
  std::vector<Timeline::Span> spans;
  int last = -1;
  std::vector<int> pass_of(program.ops().size(), -1);
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    int scope = program.ops()[i].scope;
    while (scope >= 0 && program.scopes()[scope].kind != "microbatch")
      scope = program.scopes()[scope].parent;
    if (scope < 0) continue;
    if (scope != last) spans.emplace_back(), last = scope;
    pass_of[i] = static_cast<int>(spans.size()) - 1;
  }
  for (std::size_t i = 0; i < training.plan.steps.size(); ++i) {
    const execution::Step& step = training.plan.steps[i];
    if (step.what != execution::Step::What::run || step.queue != 0) continue;
    const int pass = pass_of[step.op];
    if (pass < 0) continue;
    Timeline::Span& span = spans[pass];
    if (span.begin_s < 0) span.begin_s = prediction.begin_s[i];
    span.end_s = std::max(span.end_s, prediction.end_s[i]);
  }
  return spans;
}

/// Time of the pipeline at which something of a rank's plan lies that is beside its passes.
class Clock {
 public:
  Clock(const Timeline::Rank& rank, std::vector<Timeline::Span> planned)
      : planned_(std::move(planned)) {
    for (std::size_t i = 0; i < rank.turns.size(); ++i)
      if (rank.turns[i].pass != Turn::Pass::exchange) spans_.push_back(rank.spans[i]);
    STOWAGE_ASSERT(spans_.size() == planned_.size(), "{} passes of a timeline, {} of its plan",
                   spans_.size(), planned_.size());
  }

  double at(double planned_s) const {
    std::size_t pass = 0;
    while (pass + 1 < planned_.size() && planned_[pass + 1].begin_s <= planned_s) ++pass;
    const Timeline::Span &from = planned_[pass], &to = spans_[pass];
    const double part = (planned_s - from.begin_s) / (from.end_s - from.begin_s);
    return to.begin_s + part * (to.end_s - to.begin_s);
  }

 private:
  std::vector<Timeline::Span> planned_, spans_;
};

void add_copies(results::Trace& trace, const Timeline::Rank& line, int rank,
                const layers::TrainerPlan& plan) {
  using What = execution::Step::What;
  const layers::TrainerPlan::Training& training = *plan.training().back();
  const offload::Prediction prediction =
      offload::predict(training.recorded.program, training.plan, plan.options().planner.rates);
  const Clock clock(line, planned_passes(training, prediction));
  for (std::size_t i = 0; i < training.plan.steps.size(); ++i) {
    const execution::Step& step = training.plan.steps[i];
    if (step.what != What::copy_out && step.what != What::copy_in) continue;
    const execution::Place& from = training.plan.places[step.places[0]];
    const std::string& name = training.recorded.program.info(from.tensor).name;
    const double begin_s = clock.at(prediction.begin_s[i]);
    trace.add({rank, step.what == What::copy_out ? kOut : kIn, name, begin_s,
               prediction.end_s[i] - prediction.begin_s[i]});
  }
}

}  // namespace

void PipelinePicture::write(results::PartFile& part) const {
  const Timeline& timeline = prospect_.timeline;
  const layers::PipelineShape shape{static_cast<int>(timeline.ranks.size()),
                                    prospect_.virtual_stages};
  const bool copies = options_.planner.policy.kind != offload::Policy::Kind::none;
  results::Trace trace;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const Timeline::Rank& line = timeline.ranks[rank];
    trace.name_queue(rank, kCompute, "compute");
    trace.name_queue(rank, kExchange, "comm pipeline");
    for (std::size_t i = 0; i < line.turns.size(); ++i) {
      const Turn& turn = line.turns[i];
      const double begin_s = line.spans[i].begin_s, time_s = line.spans[i].end_s - begin_s;
      if (turn.pass == Turn::Pass::exchange)
        trace.add({rank, kExchange, exchange_name(turn), begin_s, time_s});
      else
        trace.add({rank, kCompute, pass_name(turn, shape, rank), begin_s, time_s});
    }
    if (!copies) continue;
    trace.name_queue(rank, kOut, "d2h");
    trace.name_queue(rank, kIn, "h2d");
    add_copies(trace, line, rank, layers::TrainerPlan(rank_options(deck_, rank)));
  }
  trace.write(part, "--trace");
}

}  // namespace stowage::drivers
