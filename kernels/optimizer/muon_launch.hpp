#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/optimizer/muon.hpp"

namespace stowage::kernels {

/// A piece of MuonMomentum in memory; momentum of type M.
template <class S, class M>
struct MomentumPointers {
  const execution::Accumulation<S>* gradient = nullptr;
  M* m = nullptr;
  S* direction = nullptr;
  std::int64_t elements = 0;
};

template <class S, class M>
std::vector<MomentumPointers<S, M>> momentum_pointers(
    const MuonMomentum& op, const MuonMomentum::Operands<Pointers<S>>& o) {
  std::vector<MomentumPointers<S, M>> all;
  for (const std::int64_t elements : op.elements) {
    const auto& [gradient, m, direction] = o.tensors[all.size()];
    all.push_back({gradient, static_cast<M*>(m), direction, elements});
  }
  return all;
}

/// A piece of MuonUpdate in memory; master may be nullptr.
template <class S>
struct MuonPointers {
  using A = execution::Accumulation<S>;
  S* parameter = nullptr;
  A* master = nullptr;
  const S* update = nullptr;
  std::int64_t elements = 0;
  A decay = 0, lr = 1;  ///< factors
};

template <class S>
std::vector<MuonPointers<S>> muon_pointers(const MuonUpdate& op,
                                           const MuonUpdate::Operands<Pointers<S>>& o) {
  using A = execution::Accumulation<S>;
  std::vector<MuonPointers<S>> all;
  for (const auto& [elements, decay, lr] : op.pieces) {
    const auto& [parameter, master, update] = o.tensors[all.size()];
    all.push_back({parameter, master, update, elements, static_cast<A>(decay), static_cast<A>(lr)});
  }
  return all;
}

}  // namespace stowage::kernels

/// The launches of Muon's kernels on device memory, behind the operators' checks. `stream` is a
/// cudaStream_t, the result a cudaError_t; S and M are float or Bf16.
namespace stowage::kernels::optimizer {

/// What all pieces share; addresses in device memory.
struct MomentumInputs {
  const float* norm;
  const std::int32_t* step_ok;
  double clip;
  float momentum;
  bool nesterov;
};
template <class S, class M>
int launch_momentum(std::span<const MomentumPointers<S, M>> pieces, const MomentumInputs& inputs,
                    void* stream);

struct MuonInputs {
  const float* schedule;
  const std::int32_t* step_ok;
};
template <class S>
int launch_muon(std::span<const MuonPointers<S>> pieces, const MuonInputs& inputs, void* stream);

}  // namespace stowage::kernels::optimizer
