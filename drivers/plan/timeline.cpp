#include "drivers/plan/timeline.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "execution/error.hpp"
#include "forecast/plan/delayed_text.hpp"
#include "forecast/plan/parallel_section.hpp"
#include "forecast/plan/planned_rank.hpp"
#include "inputs/data/run_section.hpp"

namespace stowage::drivers {
namespace {

using forecast::Timeline;
using layers::Pass;

char letter(Pass::Kind kind) {
  switch (kind) {
    case Pass::Kind::forward:
    case Pass::Kind::evaluate:
      return 'F';
    case Pass::Kind::backward:
      return 'B';
    case Pass::Kind::weights:
      return 'W';
    case Pass::Kind::exchange:
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
std::string exchange_line(const forecast::Timeline& timeline, const forecast::Timeline::Rank& rank,
                          double exchange_s, int columns) {
  std::string line(static_cast<std::size_t>(columns), ' ');
  for (std::size_t i = 0; i < rank.passes.size(); ++i)
    for (const layers::StageTransfer& transfer : rank.passes[i].transfers)
      mark(line, rank.spans[i].end_s - exchange_s, rank.spans[i].end_s, timeline.time_s,
           transfer.sends ? '>' : '<');
  return side_line("exchange", line);
}

std::string copy_lines(const forecast::Timeline& timeline,
                       const std::vector<forecast::RankPlan::Copy>& copies, int columns) {
  std::string out(static_cast<std::size_t>(columns), ' '), back = out;
  for (const forecast::RankPlan::Copy& copy : copies)
    mark(copy.out ? out : back, copy.begin_s, copy.begin_s + copy.time_s, timeline.time_s,
         copy.out ? '>' : '<');
  return side_line("d2h", out) + side_line("h2d", back);
}

char digit(int number) { return static_cast<char>('0' + number % 10); }

/// Lines of a rank: what is computed in the middle of each column's time, the last digit of its
/// microbatch, and which of several stages of the rank it is.
std::string rank_lines(const forecast::Timeline& timeline, const forecast::Timeline::Rank& rank,
                       int number, bool several, int columns) {
  std::string letters(static_cast<std::size_t>(columns), '.');
  std::string slots(letters.size(), ' '), chunks = slots;
  for (int column = 0; column < columns; ++column) {
    const double at_s = timeline.time_s * (column + 0.5) / columns;
    for (std::size_t i = 0; i < rank.passes.size(); ++i) {
      const Pass& pass = rank.passes[i];
      if (pass.kind == Pass::Kind::exchange || at_s < rank.spans[i].begin_s ||
          at_s >= rank.spans[i].end_s)
        continue;
      letters[column] = letter(pass.kind);
      slots[column] = digit(pass.slot);
      chunks[column] = digit(pass.chunk);
    }
  }
  std::string text = fmt::format("  rank {:<4} |{}| waits {:.1f} %\n  {:<9} |{}|\n", number,
                                 letters, 100 * (1 - rank.busy_s / timeline.time_s), "", slots);
  if (several) text += fmt::format("  {:<9} |{}|\n", "", chunks);
  return text;
}

forecast::PipelinePlan require_pipeline(const inputs::Deck& deck,
                                        const forecast::TrainerOptions& options) {
  std::optional<forecast::PipelinePlan> pipeline = forecast::decide_open_choices(options).pipeline;
  if (!pipeline)
    execution::throw_usage("--timeline: {}: at least 2 stages are needed",
                           inputs::cite(deck, &forecast::ParallelConfig::pipeline));
  return *std::move(pipeline);
}

}  // namespace

PipelinePicture::PipelinePicture(const inputs::Deck& deck)
    : name_(inputs::read(deck, &inputs::RunConfig::name)),
      data_(forecast::planned_data(deck)),
      options_(rank_options(deck, data_)),
      pipeline_(require_pipeline(deck, options_)),
      timeline_(pipeline_.timeline) {
  const offload::Policy& policy = options_.planner.policy;
  if (policy.kind == offload::Policy::Kind::none && policy.recompute.empty()) return;
  const int ranks = static_cast<int>(timeline_.ranks.size());
  std::vector<layers::PassTimes> times(pipeline_.times.size());
  for (int rank = 0; rank < ranks; ++rank) {
    plans_.push_back(plan_rank(deck, data_, rank));
    const auto own = forecast::planned_times(pipeline_, rank, plans_.back().passes);
    for (std::size_t chunk = 0; chunk < own.size(); ++chunk)
      times[chunk * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(rank)] = own[chunk];
  }
  timeline_ = forecast::with_times(pipeline_, times);
}

std::string PipelinePicture::text(int columns) const {
  const forecast::Timeline& timeline = timeline_;
  const bool several = pipeline_.virtual_stages > 1;
  std::string text = fmt::format(
      "# timeline of {}: {} ranks{} \"{}\" (cut {}), {} microbatches, schedule {}\n"
      "# {:.3f} ms without sums over ranks and optimizer{}; ranks wait {:.1f} % of it\n"
      "# F forward, B backward, W gradients of weights apart, . waits; below: the microbatch{}\n"
      "# > goes to another rank or the host, < comes from there, x both\n",
      name_, timeline.ranks.size(),
      several ? fmt::format(" with {} stages each", pipeline_.virtual_stages) : "",
      pipeline_.pattern, pipeline_.cut_for, options_.step.microbatches, name(pipeline_.schedule),
      1e3 * timeline.time_s,
      plans_.empty() ? "" : ", passes as planned with copies and what is computed again",
      100 * timeline.bubble(), several ? ", and which of the rank's stages" : "");
  if (pipeline_.delayed) text += fmt::format("# {}\n", delayed_text(*pipeline_.delayed));
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const forecast::Timeline::Rank& line = timeline.ranks[rank];
    text += rank_lines(timeline, line, static_cast<int>(rank), several, columns);
    text += exchange_line(timeline, line, pipeline_.exchange_s, columns);
    if (!plans_.empty()) text += copy_lines(timeline, copies_in(line, plans_[rank]), columns);
  }
  return text;
}

}  // namespace stowage::drivers
