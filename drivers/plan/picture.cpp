#include "drivers/plan/picture.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <vector>

#include "forecast/plan/memory_table.hpp"
#include "offload/lifetimes.hpp"

namespace stowage::drivers {
namespace {

using execution::Decision;
using execution::Plan;
using execution::Program;
using execution::Region;
using execution::Step;

/// What a place holds, from the bottom of the picture upwards.
enum Kind { kKept, kLeaving, kBack, kAgain, kWindow, kOther, kKinds };
constexpr char kLetters[kKinds] = {'#', 'o', 'b', 'r', 'w', '.'};
constexpr const char* kLegend =
    "# saved, stays   o saved, leaves or is computed again   b brought back   r computed again   "
    "w window of states   . all else\n";

std::vector<Kind> kinds_of_places(const Program& program, const Plan& plan) {
  std::vector<Kind> kinds;
  for (const execution::Place& place : plan.places) {
    const execution::Lifetime lifetime = program.info(place.tensor).lifetime;
    const Decision decision = plan.decisions[place.tensor.id];
    kinds.push_back(lifetime == execution::Lifetime::optimizer_state ? kWindow
                    : lifetime != execution::Lifetime::saved         ? kOther
                    : decision == Decision::keep                     ? kKept
                                                                     : kLeaving);
  }
  const auto kind_of = [&](int place) -> Kind& { return kinds[place]; };
  for (const Step& step : plan.steps) {
    if (step.what == Step::What::copy_in && kind_of(step.places[1]) != kWindow)
      kind_of(step.places[1]) = kBack;
    if (step.what != Step::What::rerun) continue;
    std::size_t next = 0;
    for (const execution::Use& use : program.ops()[step.op].uses)
      for (std::size_t b = 0; b < program.info(use.tensor).buffers.size(); ++b, ++next)
        if (use.access == execution::Access::write) kind_of(step.places[next]) = kAgain;
  }
  return kinds;
}

using Sizes = std::array<std::size_t, kKinds>;

/// Live bytes by kind at each step of a plan.
std::vector<Sizes> sizes_by_step(const Program& program, const Plan& plan) {
  const std::vector<Kind> kinds = kinds_of_places(program, plan);
  std::vector<Sizes> sizes(plan.steps.size() + 1, Sizes{});  // changes first, then their sums
  for (const offload::LiveRange& range : offload::live_ranges(plan)) {
    const execution::Place& place = plan.places[range.place];
    if (place.region != Region::transient) continue;
    const std::size_t bytes = execution::align_up(place.bytes);
    sizes[range.begin][kinds[range.place]] += bytes;
    sizes[range.end + 1][kinds[range.place]] -= bytes;  // what was added before: no sum is negative
    if (range.wraps()) sizes.front()[kinds[range.place]] += bytes;
  }
  for (std::size_t i = 1; i < sizes.size(); ++i)
    for (int kind = 0; kind < kKinds; ++kind) sizes[i][kind] += sizes[i - 1][kind];
  sizes.pop_back();
  return sizes;
}

std::size_t total(const Sizes& sizes) {
  std::size_t sum = 0;
  for (const std::size_t bytes : sizes) sum += bytes;
  return sum;
}

/// The fullest moment of each column.
std::vector<Sizes> columns_of(const Plan& plan, const std::vector<Sizes>& sizes,
                              const offload::Prediction& prediction, double end_s, int columns) {
  std::vector<Sizes> result(static_cast<std::size_t>(columns), Sizes{});
  int filled = -1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (plan.steps[i].queue != 0) continue;
    const double part = prediction.end_s[i] / end_s;
    const int column = std::clamp(static_cast<int>(part * columns), filled, columns - 1);
    for (int c = std::max(filled, 0); c <= column; ++c)
      if (total(sizes[i]) > total(result[c]) || c > filled) result[c] = sizes[i];
    filled = column;
  }
  return result;
}

/// A line that shows when steps of a kind are under way.
std::string busy_line(const Plan& plan, const offload::Prediction& prediction, Step::What what,
                      double end_s, int columns, char letter) {
  std::string line(static_cast<std::size_t>(columns), ' ');
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    if (plan.steps[i].what != what) continue;
    const auto column = [&](double time_s) {
      return std::clamp(static_cast<int>(time_s / end_s * columns), 0, columns - 1);
    };
    for (int c = column(prediction.begin_s[i]); c <= column(prediction.end_s[i]); ++c)
      line[c] = letter;
  }
  return line;
}

/// Bytes of a class and its letter.
struct Part {
  char letter;
  std::size_t bytes;
};

/// A bar of columns, each with the letter of what its middle lies in.
std::string bar(const std::vector<Part>& parts, std::size_t all, int columns) {
  std::string line;
  for (int column = 0; column < columns; ++column) {
    const double at = (column + 0.5) / columns * static_cast<double>(all);
    double end = 0;
    char letter = ' ';
    for (const Part& part : parts) {
      end += static_cast<double>(part.bytes);
      if (letter == ' ' && at < end) letter = part.letter;
    }
    line += letter;
  }
  return line;
}

}  // namespace

std::string homes_picture(const forecast::TrainerPlan& run,
                          const forecast::CheckpointMemory& saving, std::size_t memory,
                          int columns) {
  using execution::Lifetime;
  const execution::PersistentLayout& layout = run.layout();
  const std::vector<Part> device{{'p', layout.bytes(Lifetime::parameter)},
                                 {'g', layout.bytes(Lifetime::gradient)},
                                 {'s', layout.bytes(Lifetime::optimizer_state)},
                                 {'c', saving.device_bytes()},
                                 {'.', run.transient_bytes()}};
  constexpr auto kHost = execution::Region::host;
  const std::vector<Part> host{{'p', layout.bytes(Lifetime::parameter, kHost)},
                               {'g', layout.bytes(Lifetime::gradient, kHost)},
                               {'s', layout.bytes(Lifetime::optimizer_state, kHost)},
                               {'c', saving.host_bytes()},
                               {'o', run.host_bytes() - layout.host_bytes()}};
  const auto total_of = [](const std::vector<Part>& parts) {
    std::size_t sum = 0;
    for (const Part& part : parts) sum += part.bytes;
    return sum;
  };
  const std::size_t all = std::max({memory, total_of(device), total_of(host)});
  const auto row = [&](const char* where, const std::vector<Part>& parts, std::size_t room) {
    const std::string of = room > 0 ? fmt::format(" of {:.1f}", forecast::gib(room)) : "";
    return fmt::format("  {:<7}|{}| {:.1f}{} GiB\n", where, bar(parts, all, columns),
                       forecast::gib(total_of(parts)), of);
  };
  std::string text =
      "# homes: p parameters, g gradients, s optimizer states, c copies of checkpoints, "
      ". transient,\n#   o offloaded\n" +
      row("device", device, memory);
  return total_of(host) > 0 ? text + row("host", host, 0) : text;
}

std::string memory_picture(const Program& program, const Plan& plan,
                           const offload::Prediction& prediction, int columns, int rows) {
  double end_s = 0;
  for (const double s : prediction.end_s) end_s = std::max(end_s, s);
  const std::vector<Sizes> sizes = sizes_by_step(program, plan);
  std::size_t most = 1;
  for (const Sizes& at : sizes) most = std::max(most, total(at));
  const std::vector<Sizes> bars = columns_of(plan, sizes, prediction, end_s, columns);
  std::string text;
  for (int row = rows; row-- > 0;) {
    const double level = (row + 0.5) / rows * static_cast<double>(most);
    std::string line;
    for (const Sizes& bar : bars) {
      double sum = 0;
      char letter = ' ';
      for (int kind = 0; kind < kKinds && letter == ' '; ++kind) {
        sum += static_cast<double>(bar[kind]);
        if (sum > level) letter = kLetters[kind];
      }
      line += letter;
    }
    const double top = forecast::gib(static_cast<double>(most) * (row + 1) / rows);
    text += fmt::format("{:>9.3f} |{}\n", top, line);
  }
  text += fmt::format("      GiB +{}\n", std::string(static_cast<std::size_t>(columns), '-'));
  text += fmt::format("      d2h  {}\n",
                      busy_line(plan, prediction, Step::What::copy_out, end_s, columns, '>'));
  text += fmt::format("      h2d  {}\n",
                      busy_line(plan, prediction, Step::What::copy_in, end_s, columns, '<'));
  text += fmt::format("      rerun{}\n",
                      busy_line(plan, prediction, Step::What::rerun, end_s, columns, 'r'));
  return text + "  " + kLegend;
}

}  // namespace stowage::drivers
