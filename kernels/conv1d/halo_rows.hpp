#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"
#include "kernels/conv1d/conv1d.hpp"

namespace stowage::kernels::detail {

/// Where the elements of the three rows before a border lie, and whether their document goes on
/// behind it.
struct HaloElement {
  const std::int32_t* seq_idx;
  std::int64_t border, channels, stride;

  /// In x, whose last three rows begin at x.
  STOWAGE_PORTABLE std::int64_t at(std::int64_t i) const {
    return i / channels * stride + i % channels;
  }
  STOWAGE_PORTABLE bool passes(std::int64_t i) const {
    return seq_idx[border - kConv1dHalo + i / channels] == seq_idx[border];
  }
};

/// Element i of the halo, written once for both backends.
template <class S>
struct TakeHalo {
  HaloElement element;
  const S* x;
  S* rows;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    rows[i] = element.passes(i) ? x[element.at(i)] : static_cast<S>(0.0F);
  }
};

/// The same for its gradient.
template <class S>
struct AddHalo {
  HaloElement element;
  const S* gradient;
  S* dx;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    using A = execution::Accumulation<S>;
    if (!element.passes(i)) return;
    S& to = dx[element.at(i)];
    to = static_cast<S>(static_cast<A>(to) + static_cast<A>(gradient[i]));
  }
};

}  // namespace stowage::kernels::detail
