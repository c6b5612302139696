#include "drivers/bench_offload/stages.hpp"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <limits>

#include "forecast/plan/memory_table.hpp"
#include "run/machine/agreement.hpp"
#include "run/step/copies.hpp"

namespace stowage::drivers {
namespace {

using execution::Region;
using parallel::Axis;

/// Numbers below 2^53, so that ranks can exchange them as what they are.
constexpr std::array kIntegers{
    &results::StageNeeds::persistent_bytes, &results::StageNeeds::transient_bytes,
    &results::StageNeeds::host_bytes,       &results::StageNeeds::copies,
    &results::StageNeeds::offloaded_bytes,  &results::StageNeeds::reruns};
constexpr std::array kTimes{&results::StageNeeds::predicted_time_s,
                            &results::StageNeeds::exposed_s};

results::StageNeeds needs(const forecast::TrainerPlan& trainer, const OffloadOutcome& outcome) {
  const auto integer = [](std::size_t value) { return static_cast<std::int64_t>(value); };
  const auto bytes = [&](Region region) {
    return integer(outcome.plan.bytes[static_cast<int>(region)]);
  };
  return {.plan = outcome.name,
          .persistent_bytes = integer(trainer.layout().bytes()),
          .transient_bytes = bytes(Region::transient),
          .host_bytes = bytes(Region::host),
          .copies = outcome.counters.copies_out,
          .offloaded_bytes = integer(outcome.counters.bytes_out),
          .reruns = outcome.counters.reruns,
          .predicted_time_s = outcome.plan.time_s,
          .exposed_s = outcome.timed_modules ? run::exposed_s(outcome.modules)
                                             : std::numeric_limits<double>::quiet_NaN()};
}

}  // namespace

std::vector<results::StageNeeds> needs_by_stage(const parallel::Communicator& world,
                                                const forecast::TrainerPlan& trainer,
                                                const OffloadOutcome& outcome) {
  const parallel::GridShape& shape = trainer.options().sharing.ranks.shape;
  if (shape[Axis::pipeline] == 1) return {};
  const results::StageNeeds own = needs(trainer, outcome);
  std::vector<double> numbers;
  for (const auto member : kIntegers) numbers.push_back(static_cast<double>(own.*member));
  for (const auto member : kTimes) numbers.push_back(own.*member);
  const std::vector<double> all = run::by_rank(world, numbers);
  std::vector<results::StageNeeds> stages;
  if (world.rank() != 0) return stages;
  for (int stage = 0; stage < shape[Axis::pipeline]; ++stage) {
    parallel::PerAxis place;
    place[Axis::pipeline] = stage;
    const auto rank = static_cast<std::size_t>(parallel::rank_at(shape, place));
    results::StageNeeds& of_stage = stages.emplace_back();
    of_stage.plan = outcome.name;
    of_stage.stage = stage;
    std::size_t row = 0;
    const auto next = [&] { return all[row++ * static_cast<std::size_t>(world.size()) + rank]; };
    for (const auto member : kIntegers) of_stage.*member = static_cast<std::int64_t>(next());
    for (const auto member : kTimes) of_stage.*member = next();
  }
  return stages;
}

std::string stages_heading() {
  return fmt::format(
      "# memory and copies of the stages, on the first rank of each\n"
      "#   {:<26}{:>6}{:>12}{:>12}{:>8}{:>8}{:>11}{:>8}{:>10}\n",
      "plan", "stage", "device GiB", "persistent", "host", "copies", "leaves GiB", "reruns",
      "waits ms");
}

std::string stages_text(const std::vector<results::StageNeeds>& stages) {
  std::string text;
  for (const results::StageNeeds& stage : stages)
    text += fmt::format(
        "#   {:<26}{:>6}{:>12.3f}{:>12.3f}{:>8.3f}{:>8}{:>11.3f}{:>8}{:>10}\n", stage.plan,
        stage.stage, forecast::gib(stage.persistent_bytes + stage.transient_bytes),
        forecast::gib(stage.persistent_bytes), forecast::gib(stage.host_bytes), stage.copies,
        forecast::gib(stage.offloaded_bytes), stage.reruns,
        std::isnan(stage.exposed_s) ? "-" : fmt::format("{:.3f}", 1e3 * stage.exposed_s));
  return text;
}

}  // namespace stowage::drivers
