#include "execution/host_loops.hpp"
#include "kernels/norm/group_shares.hpp"
#include "kernels/reduce.hpp"
#include "kernels/silu.hpp"

namespace stowage::kernels {

namespace {

template <class S>
void gated_sums(const GatedSums<S>& args) {
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

}  // namespace

template <class S>
void GatedSquares::reference(const Operands<Pointers<S>>& o) const {
  gated_sums(sums(o));
}

template <class S>
void GatedProjections::reference(const Operands<Pointers<S>>& o) const {
  gated_sums(sums(o));
}

STOWAGE_REFERENCES(GatedSquares)
STOWAGE_REFERENCES(GatedProjections)

}  // namespace stowage::kernels
