#include "forecast/plan/rank_plan.hpp"

#include "execution/error.hpp"

namespace stowage::forecast {
namespace {

/// The time of the pipeline at which something of a rank's plan lies.
class Clock {
 public:
  Clock(const Timeline::Rank& rank, const std::vector<PlannedPass>& planned) : planned_(planned) {
    for (std::size_t i = 0; i < rank.passes.size(); ++i)
      if (rank.passes[i].kind != layers::Pass::Kind::exchange) spans_.push_back(rank.spans[i]);
    STOWAGE_ASSERT(spans_.size() == planned_.size(), "{} passes of a timeline, {} of its plan",
                   spans_.size(), planned_.size());
  }

  double at(double planned_s) const {
    std::size_t pass = 0;
    while (pass + 1 < planned_.size() && planned_[pass + 1].begin_s <= planned_s) ++pass;
    const PlannedPass& from = planned_[pass];
    const Timeline::Span& to = spans_[pass];
    const double part = (planned_s - from.begin_s) / (from.end_s - from.begin_s);
    return to.begin_s + part * (to.end_s - to.begin_s);
  }

 private:
  const std::vector<PlannedPass>& planned_;
  std::vector<Timeline::Span> spans_;
};

}  // namespace

RankPlan plan_rank(const inputs::Deck& deck, const PlannedData& data, int rank) {
  using What = execution::Step::What;
  PlannedData drawn = data;
  drawn.needs.capacities = {data.needs.capacities.back()};
  drawn.needs.evaluates = false;
  TrainerOptions options = rank_options(deck, drawn, rank);
  options.larger_classes = false;
  const TrainerPlan run(options);
  const TrainerPlan::Training& training = *run.training().back();
  const execution::Program& program = training.recorded.program;
  const offload::Prediction prediction =
      offload::predict(program, training.plan, forecast::alone(run.options().planner.rates));
  RankPlan plan{forecast::planned_passes(program, training.plan, forecast::step_spans(prediction)),
                {}};
  for (std::size_t i = 0; i < training.plan.steps.size(); ++i) {
    const execution::Step& step = training.plan.steps[i];
    if (!execution::is_copy(step)) continue;
    const execution::Place& from = training.plan.places[step.places[0]];
    plan.copies.push_back({step.what == What::copy_out, program.info(from.tensor).name,
                           prediction.begin_s[i], prediction.end_s[i] - prediction.begin_s[i]});
  }
  return plan;
}

std::vector<RankPlan::Copy> copies_in(const Timeline::Rank& rank, const RankPlan& plan) {
  const Clock clock(rank, plan.passes);
  std::vector<RankPlan::Copy> copies = plan.copies;
  for (RankPlan::Copy& copy : copies) copy.begin_s = clock.at(copy.begin_s);
  return copies;
}

}  // namespace stowage::forecast
