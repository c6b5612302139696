#include "drivers/data/check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <vector>

namespace stowage::drivers {

std::string check_text(const inputs::SourceOptions& options) {
  const auto source = inputs::open_source(options);
  const std::int64_t step = 1 << 16;
  std::vector<std::int32_t> tokens(step);
  std::vector<std::uint8_t> mask(step);
  std::int32_t largest = 0;
  std::int64_t targets = 0;
  for (std::int64_t first = 0; first < source->tokens(); first += step) {
    const auto size = static_cast<std::size_t>(std::min(step, source->tokens() - first));
    source->read(first, std::span(tokens).first(size));
    source->read_mask(first, std::span(mask).first(size));
    for (const std::int32_t token : std::span(tokens).first(size))
      largest = std::max(largest, token);
    for (const std::uint8_t bit : std::span(mask).first(size)) targets += bit;
  }
  std::string text =
      fmt::format("{}: {} documents, {} tokens, the largest {}\n", source->description(),
                  source->documents(), source->tokens(), largest);
  if (!source->knows_documents())
    text += "  where documents end is not known: give --document-token\n";
  if (source->masked())
    text +=
        fmt::format("  {} tokens ({:.2f} %) are predicted\n", targets,
                    100.0 * static_cast<double>(targets) / static_cast<double>(source->tokens()));
  return text;
}

}  // namespace stowage::drivers
