#include "kernels/conv1d/halo.hpp"

#include "kernels/conv1d/halo_rows.hpp"
#include "kernels/cost.hpp"
#include "kernels/operands.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

constexpr std::int64_t kHalo = kConv1dHalo;

struct Halo {
  Dtype storage;
  detail::HaloElement element;
  std::int64_t first;  ///< element of x that the last three rows begin with
};

Halo check(const Operands& operands, const Columns& x, const View& seq_idx, std::int64_t border,
           const View& rows) {
  const Dtype storage = operands.storage(rows, "rows");
  operands.rank(x.view, "x", 2);
  operands.check(x, "x", storage, x.rows(), x.count);
  operands.check(rows, "rows", storage, {kHalo, x.count});
  operands.require(x.rows() >= kHalo, "a segment has fewer tokens than the convolution looks back");
  operands.rank(seq_idx, "seq_idx", 1);
  operands.check(seq_idx, "seq_idx", Dtype::int32, {seq_idx.extent(0)});
  operands.require(border >= kHalo && border < seq_idx.extent(0), "no token lies at the border");
  return {storage,
          {seq_idx.as<const std::int32_t>(), border, x.count, x.width()},
          (x.rows() - kHalo) * x.width() + x.first};
}

}  // namespace

void conv1d_halo_rows(Queue& queue, const Columns& x, const View& seq_idx, std::int64_t border,
                      const View& rows) {
  const Halo halo = check(Operands("conv1d_halo_rows"), x, seq_idx, border, rows);
  execution::with_storage_type(halo.storage, [&]<class S>() {
    execution::parallel_for(
        queue, kHalo * x.count,
        detail::TakeHalo<S>{halo.element, x.view.as<const S>() + halo.first, rows.as<S>()});
  });
}

void conv1d_halo_add(Queue& queue, const View& gradient, const View& seq_idx, std::int64_t border,
                     const Columns& dx) {
  const Halo halo = check(Operands("conv1d_halo_add"), dx, seq_idx, border, gradient);
  execution::with_storage_type(halo.storage, [&]<class S>() {
    execution::parallel_for(
        queue, kHalo * dx.count,
        detail::AddHalo<S>{halo.element, gradient.as<const S>(), dx.view.as<S>() + halo.first});
  });
}

Cost conv1d_halo_cost(std::int64_t channels, Dtype storage) {
  return {static_cast<double>(kHalo * channels), 3 * bytes(kHalo * channels, storage)};
}

}  // namespace stowage::kernels
