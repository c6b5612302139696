#include "inputs/deck/registry.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "inputs/deck/nearest.hpp"
#include "inputs/deck/section.hpp"

namespace stowage::inputs {

bool Range::contains(double value) const {
  const bool above_low = open_low ? value > low : value >= low;
  const bool below_high = open_high ? value < high : value <= high;
  return (above_low && below_high) || (or_zero && value == 0);  // false for NaN
}

std::string Range::text() const {
  if (low == -kInfinity && high == kInfinity) return {};
  const auto number = [](double value) {  // 2147483647, not 2.147483647e+09
    return std::abs(value) < 0x1p53 && value == std::floor(value) ? fmt::format("{:.0f}", value)
                                                                  : fmt::format("{}", value);
  };
  return fmt::format("{}{}{}, {}{}", or_zero ? "{0} or " : "", open_low ? '(' : '[', number(low),
                     number(high), open_high ? ')' : ']');
}

namespace {

std::size_t section_index(const Parameter& row) {
  const auto all = sections();
  return static_cast<std::size_t>(std::ranges::find(all, row.section(), &Section::name) -
                                  all.begin());
}

}  // namespace

std::span<const Parameter> registry() {
  static const std::vector<Parameter> rows = [] {
    std::vector<Parameter> all;
    for (Declared& part : declared()) std::ranges::move(part.rows, std::back_inserter(all));
    std::ranges::stable_sort(all, {}, section_index);
    return all;
  }();
  return rows;
}

const Parameter* find(std::string_view key) {
  const auto rows = registry();
  const auto row = std::ranges::find(rows, key, &Parameter::key);
  return row == rows.end() ? nullptr : &*row;
}

const Retired* find_retired(std::string_view key) {
  static constexpr std::array<Retired, 5> kRetired = {{
      {"machine.copy_slowdown",
       "machine.d2h_slowdown_arithmetic, machine.d2h_slowdown_memory, "
       "machine.h2d_slowdown_arithmetic and machine.h2d_slowdown_memory"},
      {"offload.berths", "offload.reuse_gradient_memory", true},
      {"offload.gradient_memory", "offload.reuse_gradient_memory", true},
      {"offload.keep_unhidden", "offload.keep_exposed", true},
      {"parallel.tensor_pieces", ""},
  }};
  const auto* const row = std::ranges::find(kRetired, key, &Retired::key);
  return row == kRetired.end() ? nullptr : row;
}

std::string_view nearest_key(std::string_view key) {
  // The right name in the wrong section is the likelier mistake, so a section costs one edit.
  const std::string_view name = key.substr(key.find('.') + 1);
  std::string_view best;
  std::size_t fewest = ~std::size_t{0};
  for (const Parameter& row : registry()) {
    const std::size_t edits =
        std::min(edit_distance(key, row.key), edit_distance(name, row.name()) + 1);
    if (edits < fewest) {
      fewest = edits;
      best = row.key;
    }
  }
  const bool is_like_it = fewest <= 1 + name.size() / 4;
  return is_like_it ? best : std::string_view{};
}

std::span<const Section> sections() {
  static constexpr std::array<Section, 16> kSections = {{
      {"run", "The run: its name, length and output."},
      {"model",
       "The model: a pattern of layers and their sizes. Keys of letters that the pattern "
       "does not use have no effect."},
      {"train", "The step: element type and batch."},
      {"data", "Tokens: where they come from and how they are cut."},
      {"optim", "AdamW and the learning-rate schedule."},
      {"eval", "Evaluation on the held-out documents."},
      {"checkpoint", "Saving and resuming."},
      {"parallel", "The process grid."},
      {"offload", "What leaves the device between forward and backward."},
      {"recompute", "What is computed again in backward instead of kept."},
      {"graphs", "What is replayed as graphs."},
      {"execution", "How the program is executed; no key here changes a bit of the result."},
      {"machine", "Facts of the machine, for predictions; usually included from inputs/machines/."},
      {"validate", "Checks that decide the verdict of a run."},
      {"expects",
       "Bands in which metrics of this deck's run lie, so that a deck is also a test. "
       "Keys are free: loss_at_<step>, val_loss_at_<step>, grad_norm_at_<step>, "
       "final_loss, final_val_loss, final_grad_norm = [low, high]."},
      {"include",
       "Not a section: `include = \"other.toml\"` at the top of a file, or a list of "
       "such, is read first; paths are relative to the including file."},
  }};
  return kSections;
}

}  // namespace stowage::inputs
