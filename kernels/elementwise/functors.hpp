#pragma once

#include <cstdint>

#include "execution/dtype.hpp"
#include "execution/parallel_for.hpp"

/// What the elementwise operators do to element i, written once for both backends.
namespace stowage::kernels::detail {

template <class S>
struct Add {
  const S* a;
  const S* b;
  S* out;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    using A = execution::Accumulation<S>;
    out[i] = static_cast<S>(static_cast<A>(a[i]) + static_cast<A>(b[i]));
  }
};

template <class T>
struct Fill {
  T* x;
  T value;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const { x[i] = value; }
};

template <class From, class To>
struct Cast {
  const From* x;
  To* y;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    y[i] = static_cast<To>(static_cast<execution::Accumulation<From>>(x[i]));
  }
};

}  // namespace stowage::kernels::detail
