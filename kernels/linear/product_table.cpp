#include "kernels/linear/product_table.hpp"

#include <fmt/core.h>

namespace stowage::kernels {
namespace {

using execution::Dtype;

// NOLINTBEGIN(readability-identifier-naming): as the rows write them
[[maybe_unused]] constexpr Transpose N = Transpose::no, T = Transpose::yes;
[[maybe_unused]] constexpr Dtype bf16 = Dtype::bf16, fp32 = Dtype::fp32, e4m3 = Dtype::e4m3,
                                 e5m2 = Dtype::e5m2;
// NOLINTEND(readability-identifier-naming)

// Rows as table_row() writes them; a later row of the same key wins.
constexpr ProductChoice kTable[] = {
    {"", 0, {}, {}},
#include "kernels/linear/product_table.inc"
};

std::string_view cpp_name(Transpose transpose) { return transpose == Transpose::yes ? "T" : "N"; }

}  // namespace

std::span<const ProductChoice> product_table() { return kTable; }

std::optional<ProductAlgorithm> tabled_algorithm(std::string_view device, std::size_t library,
                                                 const ProductShape& shape) {
  std::optional<ProductAlgorithm> found;
  for (const ProductChoice& row : kTable)
    if (row.library == library && row.shape == shape && row.device == device) found = row.algorithm;
  return found;
}

std::string table_row(const ProductChoice& choice) {
  const ProductShape& s = choice.shape;
  std::string words;
  std::size_t used = choice.algorithm.size();
  while (used > 1 && choice.algorithm[used - 1] == 0) --used;
  for (std::size_t i = 0; i < used; ++i)
    words += fmt::format("{}{:#x}", i == 0 ? "" : ", ", choice.algorithm[i]);
  return fmt::format(
      "{{\"{}\", {}, {{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}}, {{{}}}}},",
      choice.device, choice.library, s.m, s.n, s.k, s.a_stride, s.b_stride, s.c_stride,
      cpp_name(s.transpose_a), cpp_name(s.transpose_b), execution::name(s.a), execution::name(s.b),
      execution::name(s.c), s.accumulate, s.fast, words);
}

}  // namespace stowage::kernels
