#pragma once

#include "execution/global_index.hpp"
#include "kernels/operator.hpp"

namespace stowage::kernels {

struct AdamwOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
};

/// One step of AdamW (decoupled weight decay, arXiv 1711.05101) on all tensors, or pieces of them:
///
///   g = gradient * min(1, clip / (norm + 1e-6)),  s = step + 1
///   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
///   master = master - lr (m / (1 - beta1^s) / (sqrt(v / (1 - beta2^s)) + eps) + decay * master)
///   parameter = round(master)
///
/// schedule: {lr, decay}, times the piece's factors; step: good steps so far, which it does not
/// change: see Advance. Nothing is written where step_ok is 0. `clip` <= 0 means no clipping.
/// Without a master the parameter is its own. An element gets the same bits however its tensor is
/// cut into pieces.
///
/// With m in e4m3 there is no master. The parameter, v and then m / sqrt(v) are rounded
/// stochastically behind the update (stochastic_rounding.hpp), by random bits of the seed, the step
/// and the element's place in the whole parameter.
struct Adamw {
  static constexpr std::string_view kName = "adamw";
  struct Piece {
    std::int64_t elements;
    double decay = 0;                   ///< factor of the schedule's weight decay
    double lr = 1;                      ///< factor of the schedule's learning rate
    std::uint64_t stream = 0;           ///< execution::stream_of the whole parameter's name
    execution::GlobalIndex index = {};  ///< which of its elements these are
  };
  std::vector<Piece> pieces;
  execution::Dtype storage;
  bool has_master;
  double clip;
  AdamwOptions options = {};
  /// Of the moments: both of sums, both bf16, or e4m3 and bf16. Rounded behind the update.
  execution::Dtype m_type = execution::accumulation(storage), v_type = m_type;
  std::uint64_t seed = 0;                                             ///< of stochastic rounding
  execution::Dtype gradient_type = execution::accumulation(storage);  ///< of sums, or bf16

  /// Of one piece.
  template <class T>
  struct Tensors {
    RowsOfType<T, Storage> parameter;
    RowsOfType<T, Sums> master;
    RowsOfType<T, const Either> gradient;
    RowsOfType<T, Either> m, v;  ///< first and second moment
  };
  template <class T>
  struct Operands {
    SumsIn<T> schedule;
    Of<T, const std::int64_t> step;
    SumsIn<T> norm;
    Of<T, const std::int32_t> step_ok;
    ListOf<T, Tensors> tensors;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("schedule", sums, {2}), o.schedule...);
    f(in("step", execution::Dtype::int64, {1}), o.step...);
    f(in("norm", sums, {1}), o.norm...);
    f(in("step_ok", execution::Dtype::int32, {1}), o.step_ok...);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::vector<std::int64_t> all = {pieces[i].elements};
      f(sum("parameter", true, storage, all).in_any_shape(), o.tensors[i].parameter...);
      f(sum("master", true, sums, all).in_any_shape().when(has_master), o.tensors[i].master...);
      f(in("gradient", gradient_type, all).in_any_shape(), o.tensors[i].gradient...);
      f(sum("m", true, m_type, all).in_any_shape(), o.tensors[i].m...);
      f(sum("v", true, v_type, all).in_any_shape(), o.tensors[i].v...);
    }
  }
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// ++step if step_ok: an operation of its own, behind Adamw.
struct Advance {
  static constexpr std::string_view kName = "advance";

  template <class T>
  struct Operands {
    Of<T, std::int64_t> step;
    Of<T, const std::int32_t> step_ok;
  };
  void each(auto&& f, auto&... o) const {
    f(sum("step", true, execution::Dtype::int64, {1}), o.step...);
    f(in("step_ok", execution::Dtype::int32, {1}), o.step_ok...);
  }
  execution::Cost cost() const { return {}; }
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

}  // namespace stowage::kernels
