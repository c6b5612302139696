#include <vector>

#include "execution/fp8.hpp"
#include "execution/host_loops.hpp"
#include "kernels/blas.hpp"
#include "kernels/fp8/fp8_product.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {

constexpr std::int64_t kElements = 4096;  // of a part of the loop

/// The payload's values, without their scale.
template <class A>
std::vector<A> values(execution::Dtype dtype, const std::uint8_t* payload, std::int64_t count) {
  std::vector<A> all(static_cast<std::size_t>(count));
  execution::with_fp8_type(dtype, [&]<class Format>() {
    execution::host_for(count, kElements, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        Format value;
        value.bits = payload[i];
        all[static_cast<std::size_t>(i)] = static_cast<A>(value);
      }
    });
  });
  return all;
}

}  // namespace

template <class S>
void Fp8Product::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const std::vector<A> left = values<A>(a, o.a, m * k), right = values<A>(b, o.b, n * k);
  std::vector<A> all(static_cast<std::size_t>(m * n));
  matmul(Factor<A>{{left.data(), m, k, k}, Transpose::no},
         Factor<A>{{right.data(), n, k, k}, Transpose::yes}, Matrix<A>{all.data(), m, n, n}, false);
  const A scale = *o.a_scale * *o.b_scale;
  const auto store = [&]<class C>(C* c) {
    execution::host_for(m * n, kElements, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const A before = accumulate ? static_cast<A>(c[i]) : A{0};
        c[i] = static_cast<C>(before + scale * all[static_cast<std::size_t>(i)]);
      }
    });
  };
  sums ? store(static_cast<A*>(o.c)) : store(static_cast<S*>(o.c));
}

STOWAGE_REFERENCES(Fp8Product)

}  // namespace stowage::kernels
