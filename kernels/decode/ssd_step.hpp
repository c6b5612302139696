#pragma once

#include "kernels/ssd/ssd.hpp"

namespace stowage::kernels {

/// One more token of each of B sequences through the scan of SsdForward: the recurrence that it
/// states, once. state (B, H, P, N) is h before the token and behind it; of a sequence whose
/// position is 0 it is taken for zero, whatever it holds.
struct SsdStep {
  static constexpr std::string_view kName = "ssd_step";
  SsdShape shape;
  std::int64_t sequences;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    InColumns<T> xbc;  ///< (B, H P + 2 G N): [X | B | C]
    InColumns<T> dt;   ///< (B, H), before bias and softplus
    In<T> a_log, d, dt_bias;
    Of<T, const std::int32_t> positions;
    SumsOut<T> state;
    Out<T> y;
  };
  void each(auto&& f, auto&... o) const {
    f(in("xbc", storage, {sequences, shape.channels()}), o.xbc...);
    f(in("dt", storage, {sequences, shape.heads}), o.dt...);
    f(in("a_log", storage, {shape.heads}), o.a_log...);
    f(in("d", storage, {shape.heads}), o.d...);
    f(in("dt_bias", storage, {shape.heads}), o.dt_bias...);
    f(in("positions", execution::Dtype::int32, {sequences}), o.positions...);
    f(sum("state", true, execution::accumulation(storage),
          {sequences, shape.heads, shape.head_dim, shape.state}),
      o.state...);
    f(out("y", storage, {sequences, shape.inner()}), o.y...);
  }
  std::string fault() const { return shape.fault(); }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
