#include "execution/host_loops.hpp"
#include "kernels/norm/group_shares.hpp"
#include "kernels/reduce.hpp"
#include "kernels/silu.hpp"

namespace stowage::kernels {

using execution::Bf16;

template <class S>
void gated_sums_ref(const GatedSums<S>& args) {
  using A = execution::Accumulation<S>;
  constexpr std::int64_t kRows = 16;
  execution::host_for(args.rows, kRows, [&args](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const S* y = args.y + i * args.width;
      const S* z = args.z + i * args.z_stride;
      args.sums[i] = ordered_sum<A>(args.width, [&](std::int64_t j) {
        const A zj = static_cast<A>(z[j]);
        const A gated = static_cast<A>(y[j]) * zj * sigmoid(zj);
        if (args.dout == nullptr) return gated * gated;
        return static_cast<A>(args.dout[i * args.width + j]) * static_cast<A>(args.w[j]) * gated;
      });
    }
  });
}

template void gated_sums_ref(const GatedSums<double>&);
template void gated_sums_ref(const GatedSums<float>&);
template void gated_sums_ref(const GatedSums<Bf16>&);

}  // namespace stowage::kernels
