#include "drivers/data/step_times.hpp"

#include <algorithm>
#include <cmath>

#include "execution/causal_pairs.hpp"
#include "execution/error.hpp"
#include "forecast/plan/planned_rank.hpp"
#include "inputs/data/run_section.hpp"
#include "offload/prediction.hpp"

namespace stowage::drivers {
namespace {

constexpr std::int64_t kSamples = 2048;  // a few seconds of reading at most

/// A step of the data: the most documents of a microbatch, and the pairs of one on average.
struct Sample {
  std::int64_t documents = 0;
  double pairs = 0;
};

std::vector<Sample> sample_steps(const inputs::Deck& deck, inputs::Loader& loader) {
  const auto n =
      static_cast<std::size_t>(inputs::read(deck, &inputs::TrainConfig::seq_length) *
                               inputs::read(deck, &inputs::TrainConfig::micro_batch_size));
  std::vector<std::int32_t> tokens(n), targets(n);
  std::vector<std::int32_t> starts(static_cast<std::size_t>(loader.max_documents()) + 1);
  const std::int64_t stride = std::max<std::int64_t>(1, loader.steps_per_pass() / kSamples);
  std::vector<Sample> samples;
  for (std::int64_t step = 0; step < loader.steps_per_pass(); ++step, loader.advance()) {
    if (step % stride != 0) continue;
    Sample sample{loader.global_documents(), 0};
    for (std::int64_t m = 0; m < loader.microbatches(); ++m) {
      (void)loader.fill(m, {tokens, targets, starts});
      for (std::size_t i = 1; i < starts.size(); ++i) {
        const double length = starts[i] - starts[i - 1];
        sample.pairs += execution::causal_pairs(length, length);
      }
    }
    sample.pairs /= static_cast<double>(loader.microbatches());
    samples.push_back(sample);
  }
  return samples;
}

/// Steps of the plan of a deck. Capacities and lengths change no op, only what ops cost.
class Predictor {
 public:
  Predictor(const inputs::Deck& deck, const inputs::Loader& loader) : run_(options(deck, loader)) {}

  double step_s(std::int64_t capacity, double pairs) const {
    const forecast::TrainerOptions& options = run_.options();
    const forecast::TrainerPlan::Training& planned = *run_.training().front();
    layers::StepShape shape = planned.recorded.shape;
    shape.capacity = capacity;
    shape.pairs = std::llround(pairs);
    const layers::TrainingProgram costed =
        layers::record_training(run_.model(), shape, *options.state.optimizer, options.optimizer,
                                run_.layout(), options.sharing);
    STOWAGE_ASSERT(costed.program.ops().size() == planned.recorded.program.ops().size(),
                   "lengths of documents change the ops of a step");
    const double waits_s = run_.step_s(planned) - planned.plan.time_s;
    return waits_s + offload::predict(costed.program, planned.plan, options.planner.rates).time_s;
  }

 private:
  static forecast::TrainerOptions options(const inputs::Deck& deck, const inputs::Loader& loader) {
    const forecast::RunNeeds needs{
        .capacities = {loader.max_documents()}, .pairs = loader.max_pairs(), .saves = true};
    forecast::TrainerOptions options = forecast::rank_options(deck, {needs, {}});
    options.larger_classes = false;
    return options;
  }

  forecast::TrainerPlan run_;
};

}  // namespace

std::vector<StepTimes> step_times(const inputs::Deck& deck, inputs::Loader& loader,
                                  const std::vector<std::int64_t>& capacities,
                                  std::string& refused) {
  std::vector<StepTimes> times;
  try {
    const std::int64_t largest = loader.max_documents();
    const Predictor predictor(deck, loader);
    const std::vector<Sample> samples = sample_steps(deck, loader);
    const auto mean_s = [&](std::int64_t capacity, std::int64_t above, std::int64_t most) {
      double pairs = 0, count = 0;
      for (const Sample& sample : samples)
        if (sample.documents > above && sample.documents <= most) {
          pairs += sample.pairs;
          ++count;
        }
      return count > 0 ? predictor.step_s(capacity, pairs / count) : 0.0;
    };
    for (const std::int64_t capacity : capacities)
      times.push_back({mean_s(capacity, 0, capacity), mean_s(largest, capacity, largest)});
  } catch (const execution::Error& error) {
    if (error.exit() != execution::Exit::usage) throw;
    refused = error.what();
    times.clear();
  }
  return times;
}

}  // namespace stowage::drivers
