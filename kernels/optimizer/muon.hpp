#pragma once

#include "kernels/operator.hpp"

/// What Muon (Jordan et al., https://kellerjordan.github.io/posts/muon) does element by element,
/// before and behind newton_schulz.hpp. An element gets the same bits however its tensor is cut
/// into pieces.
namespace stowage::kernels {

/// Momentum, and the direction that it gives:
///
///   g = gradient * min(1, clip / (norm + 1e-6)),  m = momentum * m + g
///   direction = round(nesterov ? g + momentum * m : m)
///
/// `clip` <= 0 means no clipping. Where step_ok is 0, m stays as it is and the direction is 0.
struct MuonMomentum {
  static constexpr std::string_view kName = "muon_momentum";
  std::vector<std::int64_t> elements;  ///< of each piece
  execution::Dtype storage;
  double clip;
  double momentum;
  bool nesterov;
  bool bf16_momentum = false;  ///< m is stored in bf16: rounded behind the direction

  /// Of one piece.
  template <class T>
  struct Tensors {
    RowsOfType<T, const Sums> gradient;
    RowsOfType<T, Either> m;
    OutRows<T> direction;
  };
  template <class T>
  struct Operands {
    SumsIn<T> norm;
    Of<T, const std::int32_t> step_ok;
    ListOf<T, Tensors> tensors;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    const execution::Dtype of_m = bf16_momentum ? execution::Dtype::bf16 : sums;
    f(in("norm", sums, {1}), o.norm...);
    f(in("step_ok", execution::Dtype::int32, {1}), o.step_ok...);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      f(in("gradient", sums, {elements[i]}).in_any_shape(), o.tensors[i].gradient...);
      f(sum("m", true, of_m, {elements[i]}).in_any_shape(), o.tensors[i].m...);
      f(out("direction", storage, {elements[i]}).in_any_shape(), o.tensors[i].direction...);
    }
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// The step itself, with decoupled weight decay:
///
///   master = master - lr (update + decay * master),  parameter = round(master)
///
/// schedule: {lr, decay}, times the piece's factors. Nothing is written where step_ok is 0. Without
/// a master the parameter is its own.
struct MuonUpdate {
  static constexpr std::string_view kName = "muon_update";
  struct Piece {
    std::int64_t elements;
    double decay = 0;  ///< factor of the schedule's weight decay
    double lr = 1;     ///< factor of the schedule's learning rate
  };
  std::vector<Piece> pieces;
  execution::Dtype storage;
  bool has_master;

  /// Of one piece.
  template <class T>
  struct Tensors {
    RowsOfType<T, Storage> parameter;
    RowsOfType<T, Sums> master;
    InRows<T> update;
  };
  template <class T>
  struct Operands {
    SumsIn<T> schedule;
    Of<T, const std::int32_t> step_ok;
    ListOf<T, Tensors> tensors;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("schedule", sums, {2}), o.schedule...);
    f(in("step_ok", execution::Dtype::int32, {1}), o.step_ok...);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::vector<std::int64_t> all = {pieces[i].elements};
      f(sum("parameter", true, storage, all).in_any_shape(), o.tensors[i].parameter...);
      f(sum("master", true, sums, all).in_any_shape().when(has_master), o.tensors[i].master...);
      f(in("update", storage, all).in_any_shape(), o.tensors[i].update...);
    }
  }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
