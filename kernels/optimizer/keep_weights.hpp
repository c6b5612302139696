#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// kept = weight, where `asked` is not 0: what a step is about to change. Where it is 0 nothing is
/// read or written. The weight is the master, or without one the parameter.
struct KeepWeights {
  static constexpr std::string_view kName = "keep_weights";
  std::vector<std::int64_t> elements;  ///< of each piece
  execution::Dtype storage;
  bool has_master;

  /// Of one piece.
  template <class T>
  struct Tensors {
    RowsOfType<T, const Either> weight;
    RowsOfType<T, Either> kept;
  };
  template <class T>
  struct Operands {
    Of<T, const std::int32_t> asked;
    ListOf<T, Tensors> tensors;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype of_weights = has_master ? execution::accumulation(storage) : storage;
    f(in("asked", execution::Dtype::int32, {1}), o.asked...);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      f(in("weight", of_weights, {elements[i]}).in_any_shape(), o.tensors[i].weight...);
      f(out("kept", of_weights, {elements[i]}).in_any_shape(), o.tensors[i].kept...);
    }
  }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
