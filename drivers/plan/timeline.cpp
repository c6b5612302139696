#include "drivers/plan/timeline.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "drivers/common/delayed_text.hpp"
#include "drivers/common/planned_rank.hpp"
#include "execution/error.hpp"

namespace stowage::drivers {
namespace {

using layers::Turn;
using training::Timeline;

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

/// Marks the columns in which something goes on; 'x' where two kinds of it do.
void mark(std::string& line, double begin_s, double end_s, double all_s, char letter) {
  const auto columns = static_cast<int>(line.size());
  const auto column = [&](double time_s) {
    return std::clamp(static_cast<int>(time_s / all_s * columns), 0, columns - 1);
  };
  for (int c = column(begin_s); c <= column(end_s); ++c)
    line[c] = line[c] == ' ' || line[c] == letter ? letter : 'x';
}

/// A line of what goes on beside passes, if anything does.
std::string side_line(const char* what, const std::string& line) {
  if (line.find_first_not_of(' ') == std::string::npos) return {};
  return fmt::format("  {:>9} |{}|\n", what, line);
}

/// Messages are drawn while they are under way, without what they wait for.
std::string exchange_line(const Timeline& timeline, const Timeline::Rank& rank, double exchange_s,
                          int columns) {
  std::string line(static_cast<std::size_t>(columns), ' ');
  for (std::size_t i = 0; i < rank.turns.size(); ++i)
    for (const layers::Hop& hop : rank.turns[i].hops)
      mark(line, rank.spans[i].end_s - exchange_s, rank.spans[i].end_s, timeline.time_s,
           hop.sends ? '>' : '<');
  return side_line("exchange", line);
}

std::string copy_lines(const Timeline& timeline, const std::vector<RankPlan::Copy>& copies,
                       int columns) {
  std::string out(static_cast<std::size_t>(columns), ' '), back = out;
  for (const RankPlan::Copy& copy : copies)
    mark(copy.out ? out : back, copy.begin_s, copy.begin_s + copy.time_s, timeline.time_s,
         copy.out ? '>' : '<');
  return side_line("d2h", out) + side_line("h2d", back);
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

training::Prospect require_prospect(const inputs::Deck& deck,
                                    const training::TrainerOptions& options) {
  std::optional<training::Prospect> prospect = training::foresee(options).prospect;
  if (!prospect)
    execution::throw_usage("--timeline: {}: at least 2 stages are needed",
                           deck.cite("parallel.pipeline"));
  return *std::move(prospect);
}

}  // namespace

PipelinePicture::PipelinePicture(const inputs::Deck& deck)
    : name_(deck.get<std::string>("run.name")),
      data_(planned_data(deck)),
      options_(rank_options(deck, data_)),
      prospect_(require_prospect(deck, options_)),
      timeline_(prospect_.timeline) {
  const offload::Policy& policy = options_.planner.policy;
  if (policy.kind == offload::Policy::Kind::none && policy.recompute.empty()) return;
  const int ranks = static_cast<int>(timeline_.ranks.size());
  std::vector<layers::PassTimes> times(prospect_.times.size());
  for (int rank = 0; rank < ranks; ++rank) {
    plans_.push_back(plan_rank(deck, data_, rank));
    const auto own = training::planned_times(prospect_, rank, plans_.back().passes);
    for (std::size_t chunk = 0; chunk < own.size(); ++chunk)
      times[chunk * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(rank)] = own[chunk];
  }
  timeline_ = training::with_times(prospect_, times);
}

std::string PipelinePicture::text(int columns) const {
  const Timeline& timeline = timeline_;
  const bool several = prospect_.virtual_stages > 1;
  std::string text = fmt::format(
      "# timeline of {}: {} ranks{} \"{}\" (cut {}), {} microbatches, schedule {}\n"
      "# {:.3f} ms without sums over ranks and optimizer{}; ranks wait {:.1f} % of it\n"
      "# F forward, B backward, W gradients of weights apart, . waits; below: the microbatch{}\n"
      "# > goes to another rank or the host, < comes from there, x both\n",
      name_, timeline.ranks.size(),
      several ? fmt::format(" with {} stages each", prospect_.virtual_stages) : "",
      prospect_.pattern, prospect_.cut_for, options_.step.microbatches, name(prospect_.schedule),
      1e3 * timeline.time_s,
      plans_.empty() ? "" : ", passes as planned with copies and what is computed again",
      100 * timeline.bubble(), several ? ", and which of the rank's stages" : "");
  if (prospect_.delayed) text += fmt::format("# {}\n", delayed_text(*prospect_.delayed));
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const Timeline::Rank& line = timeline.ranks[rank];
    text += rank_lines(timeline, line, static_cast<int>(rank), several, columns);
    text += exchange_line(timeline, line, prospect_.exchange_s, columns);
    if (!plans_.empty()) text += copy_lines(timeline, copies_in(line, plans_[rank]), columns);
  }
  return text;
}

}  // namespace stowage::drivers
