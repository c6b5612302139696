#include "kernels/linear/product_fill.hpp"

#include <algorithm>
#include <limits>

#include "kernels/cost.hpp"

namespace stowage::kernels {
namespace {

constexpr std::int64_t kMultiprocessors = 132;
constexpr std::int64_t kRows = 128, kColumns = 256;  // of the tile that large products take
constexpr std::int64_t kLeastColumns = 64;           // of one for narrow results
constexpr std::int64_t kLeastSum = 2048;  // of a split: less is not worth the sums of parts

/// What large products, of which machine.matmul_flops_per_s is the rate, keep busy: 8192^3.
constexpr double kLargeFill = 2048.0 / (16 * kMultiprocessors);

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// FLOPs of all multiprocessors in the rounds of tiles of (m, n), of which each sums a part of k.
double round_flops(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t parts) {
  const std::int64_t columns = std::min(kColumns, ceil_div(n, kLeastColumns) * kLeastColumns);
  const std::int64_t tiles = ceil_div(m, kRows) * ceil_div(n, columns) * parts;
  const std::int64_t rounds = ceil_div(tiles, kMultiprocessors);
  return product_flops(rounds * kMultiprocessors * kRows, columns, k) / static_cast<double>(parts);
}

}  // namespace

double product_idle_flops(std::int64_t m, std::int64_t n, std::int64_t k) {
  if (m == 0 || n == 0) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t parts = 1; parts == 1 || parts * kLeastSum <= k; ++parts)
    least = std::min({least, round_flops(m, n, k, parts), round_flops(n, m, k, parts)});
  return std::max(0.0, kLargeFill * least - product_flops(m, n, k));
}

}  // namespace stowage::kernels
