#include "drivers/bench_scaling/layout.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "execution/error.hpp"
#include "inputs/deck/words.hpp"

namespace stowage::drivers {
namespace {

using parallel::Axis;

constexpr char kStages = 'v';
constexpr int kMostExtent = 1 << 20;  // products of five fit a double exactly

char letter(Axis axis) { return parallel::name(axis).front(); }

[[noreturn]] void refuse(const std::string& layout, const std::string& word) {
  execution::throw_usage(
      "--layouts: '{}' in '{}' is no part of a layout; allowed: t=N, c=N, e=N, p=N, d=N with "
      "N >= 1, with p also v=N, each once, and zero",
      word, layout);
}

/// What a letter of a layout is the size of; null: nothing.
int* extent_of(Layout& layout, char wanted) {
  if (wanted == kStages) return &layout.virtual_stages;
  const auto axis = std::ranges::find(parallel::kAllAxes, wanted, letter);
  return axis == parallel::kAllAxes.end() ? nullptr : &layout.shape.extent[*axis];
}

void read_extent(Layout& layout, const std::string& text, const std::string& word) {
  int extent = 0;
  const char* end = word.data() + word.size();
  int* wanted = extent_of(layout, word.front());
  if (wanted == nullptr || word.size() < 3 || word[1] != '=') refuse(text, word);
  const auto [last, error] = std::from_chars(word.data() + 2, end, extent);
  if (error != std::errc() || last != end || extent < 1 || extent > kMostExtent) refuse(text, word);
  *wanted = extent;
}

Layout parse(const std::string& text) {
  Layout layout;
  std::string blanks = text;
  std::ranges::replace(blanks, ':', ' ');
  std::istringstream stream(blanks);
  std::string seen;
  for (std::string word; stream >> word;) {
    const char kind = word == "zero" ? 'z' : word.front();
    if (seen.find(kind) != std::string::npos) refuse(text, word);
    seen += kind;
    if (kind == 'z')
      layout.zero = true;
    else
      read_extent(layout, text, word);
  }
  if (layout.virtual_stages > 1 && layout.shape[Axis::pipeline] == 1)
    refuse(text, fmt::format("{}={}", kStages, layout.virtual_stages));
  return layout;
}

/// Its ranks, as far as they can be counted: an int overflows.
double count(const Layout& layout) {
  double ranks = 1;
  for (const Axis axis : parallel::kAllAxes) ranks *= layout.shape[axis];
  return ranks;
}

}  // namespace

std::vector<Layout> parse_layouts(std::string_view list, int most) {
  std::vector<Layout> layouts;
  for (const std::string& text : inputs::words(list)) {
    const Layout layout = parse(text);
    if (count(layout) > most)
      execution::throw_usage("--layouts: '{}' needs {:.0f} ranks, the job has {}", text,
                             count(layout), most);
    if (std::ranges::find(layouts, layout) != layouts.end())
      execution::throw_usage("--layouts: '{}' is given twice", text);
    layouts.push_back(layout);
  }
  if (layouts.empty())
    execution::throw_usage("--layouts: names no layout, such as \"d=1, d=2, t=2, d=2 zero\"");
  std::ranges::stable_sort(layouts, {}, &Layout::ranks);
  return layouts;
}

}  // namespace stowage::drivers
