#pragma once

#include "kernels/operator.hpp"

/// The exponential moving average of weights (Polyak and Juditsky 1992), and its way into their
/// place. An element gets the same bits however its tensor is cut into pieces.
namespace stowage::kernels {

/// One step of the average:
///
///   ema = ema + (1 - decay) (weight - ema)
///
/// The weight is the master, or without one the parameter. Nothing is written where step_ok is 0.
struct Ema {
  static constexpr std::string_view kName = "ema";
  std::vector<std::int64_t> elements;  ///< of each piece
  execution::Dtype storage;
  bool has_master;
  double decay;

  /// Of one piece.
  template <class T>
  struct Tensors {
    RowsOfType<T, const Either> weight;
    RowsOfType<T, Sums> ema;
  };
  template <class T>
  struct Operands {
    Of<T, const std::int32_t> step_ok;
    ListOf<T, Tensors> tensors;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("step_ok", execution::Dtype::int32, {1}), o.step_ok...);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      f(in("weight", has_master ? sums : storage, {elements[i]}).in_any_shape(),
        o.tensors[i].weight...);
      f(sum("ema", true, sums, {elements[i]}).in_any_shape(), o.tensors[i].ema...);
    }
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// Weights and their average change places:
///
///   master, ema = ema, master;  parameter = round(master)
///
/// Without a master the parameter changes places with the average, which is of its type. Done twice
/// it leaves every bit as it was, of a parameter that is its rounded master.
struct ExchangeEma {
  static constexpr std::string_view kName = "exchange_ema";
  std::vector<std::int64_t> elements;  ///< of each piece
  execution::Dtype storage;
  bool has_master;

  /// Of one piece.
  template <class T>
  struct Tensors {
    RowsOfType<T, Storage> parameter;
    RowsOfType<T, Sums> master;
    RowsOfType<T, Sums> ema;
  };
  template <class T>
  struct Operands {
    ListOf<T, Tensors> tensors;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const std::vector<std::int64_t> all = {elements[i]};
      f(sum("parameter", !has_master, storage, all).in_any_shape(), o.tensors[i].parameter...);
      f(sum("master", true, sums, all).in_any_shape().when(has_master), o.tensors[i].master...);
      f(sum("ema", true, sums, all).in_any_shape(), o.tensors[i].ema...);
    }
  }
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
