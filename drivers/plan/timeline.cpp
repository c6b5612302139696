#include "drivers/plan/timeline.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "drivers/common/delayed_text.hpp"
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

char digit(int number) { return static_cast<char>('0' + number % 10); }

/// Lines of a rank: what is computed in the middle of each column's time, the last digit of its
/// microbatch, and which of several stages of the rank it is.
std::string rank_lines(const Timeline& timeline, const Timeline::Rank& rank, int number,
                       bool several, int columns) {
  std::string passes(static_cast<std::size_t>(columns), '.');
  std::string slots(passes.size(), ' '), chunks = slots;
  for (int column = 0; column < columns; ++column) {
    const double at_s = timeline.time_s * (column + 0.5) / columns;
    for (std::size_t i = 0; i < rank.turns.size(); ++i) {
      const Turn& turn = rank.turns[i];
      if (turn.pass == Turn::Pass::exchange || at_s < rank.spans[i].begin_s ||
          at_s >= rank.spans[i].end_s)
        continue;
      passes[column] = letter(turn.pass);
      slots[column] = digit(turn.slot);
      chunks[column] = digit(turn.chunk);
    }
  }
  std::string text = fmt::format("  rank {:<4} |{}| waits {:.1f} %\n  {:<9} |{}|\n", number, passes,
                                 100 * (1 - rank.busy_s / timeline.time_s), "", slots);
  if (several) text += fmt::format("  {:<9} |{}|\n", "", chunks);
  return text;
}

const char* name(layers::PipelineSchedule schedule) {
  if (schedule == layers::PipelineSchedule::interleaved) return "interleaved";
  return schedule == layers::PipelineSchedule::zero_bubble ? "zero_bubble" : "1f1b";
}

layers::Prospect require_prospect(const inputs::Deck& deck, const layers::TrainerOptions& options) {
  std::optional<layers::Prospect> prospect = layers::foresee(options).prospect;
  if (!prospect)
    execution::throw_usage("--timeline: {}: at least 2 stages are needed",
                           deck.cite("parallel.pipeline"));
  return *std::move(prospect);
}

}  // namespace

PipelinePicture::PipelinePicture(const inputs::Deck& deck)
    : deck_(deck), options_(rank_options(deck)), prospect_(require_prospect(deck, options_)) {}

std::string PipelinePicture::text(int columns) const {
  const Timeline& timeline = prospect_.timeline;
  const bool several = prospect_.virtual_stages > 1;
  std::string text = fmt::format(
      "# timeline of {}: {} ranks{} \"{}\" (cut {}), {} microbatches, schedule {}\n"
      "# {:.3f} ms without sums over ranks, optimizer and copies; ranks wait {:.1f} % of it\n"
      "# F forward, B backward, W gradients of weights apart, . waits; below: the microbatch{}\n",
      deck_.get<std::string>("run.name"), timeline.ranks.size(),
      several ? fmt::format(" with {} stages each", prospect_.virtual_stages) : "",
      prospect_.pattern, prospect_.cut_for, options_.step.microbatches, name(prospect_.schedule),
      1e3 * timeline.time_s, 100 * timeline.bubble(),
      several ? ", and which of the rank's stages" : "");
  if (prospect_.delayed) text += fmt::format("# {}\n", delayed_text(*prospect_.delayed));
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank)
    text += rank_lines(timeline, timeline.ranks[rank], static_cast<int>(rank), several, columns);
  return text;
}

}  // namespace stowage::drivers
