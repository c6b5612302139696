#include "drivers/plan/timeline.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "drivers/common/planned_rank.hpp"
#include "execution/error.hpp"

namespace stowage::drivers {
namespace {

using layers::Timeline;
using layers::Turn;

char letter(Turn::Pass pass) {
  switch (pass) {
    case Turn::Pass::forward:
    case Turn::Pass::evaluate:
      return 'F';
    case Turn::Pass::backward:
      return 'B';
    case Turn::Pass::weights:
      return 'W';
    case Turn::Pass::exchange:
      break;
  }
  return '?';
}

/// Two lines of a stage: what is computed in the middle of each column's time, and the last digit
/// of its microbatch.
std::string stage_lines(const Timeline& timeline, const Timeline::Stage& stage, int number,
                        int columns) {
  std::string passes(static_cast<std::size_t>(columns), '.'), slots = passes;
  std::ranges::fill(slots, ' ');
  for (int column = 0; column < columns; ++column) {
    const double at_s = timeline.time_s * (column + 0.5) / columns;
    for (std::size_t i = 0; i < stage.turns.size(); ++i) {
      const Turn& turn = stage.turns[i];
      if (turn.pass == Turn::Pass::exchange || at_s < stage.spans[i].begin_s ||
          at_s >= stage.spans[i].end_s)
        continue;
      passes[static_cast<std::size_t>(column)] = letter(turn.pass);
      slots[static_cast<std::size_t>(column)] = static_cast<char>('0' + turn.slot % 10);
    }
  }
  return fmt::format("  stage {:<3} |{}| waits {:.1f} %\n  {:<9} |{}|\n", number, passes,
                     100 * (1 - stage.busy_s / timeline.time_s), "", slots);
}

const char* name(layers::PipelineSchedule schedule) {
  return schedule == layers::PipelineSchedule::zero_bubble ? "zero_bubble" : "1f1b";
}

}  // namespace

std::string timeline_text(const inputs::Deck& deck, int columns) {
  const layers::TrainerOptions options = rank_options(deck);
  const std::optional<layers::Prospect> prospect = layers::foresee(options);
  if (!prospect)
    execution::throw_usage("--timeline: {}: at least 2 stages are needed",
                           deck.cite("parallel.pipeline"));
  const Timeline& timeline = prospect->timeline;
  std::string text = fmt::format(
      "# timeline of {}: {} stages \"{}\", {} microbatches, schedule {}\n"
      "# {:.3f} ms without sums over ranks, optimizer and copies; stages wait {:.1f} % of it\n"
      "# F forward, B backward, W gradients of weights apart, . waits; below: the microbatch\n",
      deck.get<std::string>("run.name"), timeline.stages.size(), prospect->pattern,
      options.step.microbatches, name(prospect->schedule), 1e3 * timeline.time_s,
      100 * timeline.bubble());
  for (std::size_t s = 0; s < timeline.stages.size(); ++s)
    text += stage_lines(timeline, timeline.stages[s], static_cast<int>(s), columns);
  return text;
}

}  // namespace stowage::drivers
