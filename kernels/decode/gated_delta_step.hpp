#pragma once

#include "kernels/gated_delta/gated_delta.hpp"

namespace stowage::kernels {

/// One more token of each of B sequences through the rule of GatedDeltaForward: the recurrence that
/// it states, once. state (B, Hv, P, N) is S before the token and behind it; of a sequence whose
/// position is 0 it is taken for zero, whatever it holds.
struct GatedDeltaStep {
  static constexpr std::string_view kName = "gated_delta_step";
  GatedDeltaShape shape;
  std::int64_t sequences;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    InColumns<T> qkv;  ///< (B, 2 Hk N + Hv P): [q | k | v], before the norms of q and k
    InColumns<T> ba;   ///< (B, 2 Hv): [b | a], before sigmoid and softplus
    In<T> a;           ///< with channel_decay; see GatedDeltaInputs
    In<T> a_log, dt_bias;
    Of<T, const std::int32_t> positions;
    SumsOut<T> state;
    Out<T> y;
  };
  void each(auto&& f, auto&... o) const {
    f(in("qkv", storage, {sequences, shape.channels()}), o.qkv...);
    f(in("ba", storage, {sequences, shape.gates()}), o.ba...);
    f(in("a", storage, {sequences, shape.decays()}).when(shape.channel_decay), o.a...);
    f(in("a_log", storage, {shape.value_heads}), o.a_log...);
    f(in("dt_bias", storage, {shape.decays()}), o.dt_bias...);
    f(in("positions", execution::Dtype::int32, {sequences}), o.positions...);
    f(sum("state", true, execution::accumulation(storage),
          {sequences, shape.value_heads, shape.value_dim, shape.key_dim}),
      o.state...);
    f(out("y", storage, {sequences, shape.values()}), o.y...);
  }
  std::string fault() const { return shape.fault(); }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
