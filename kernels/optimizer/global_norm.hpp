#pragma once

#include "kernels/operator.hpp"
#include "kernels/optimizer/norm_block.hpp"

/// The norm of all gradients, sqrt(sum of squares), in two operators: sums of fixed blocks, which
/// ranks may share out among them, and the sum of those. Squares are added in fp64, which cannot
/// overflow for finite fp32 gradients, in the order of norm_block.hpp: the same bits on both
/// backends, however the tensors are cut.
namespace stowage::kernels {

/// partials[slot + b] = the sum of squares of block b, for each block that lies in a piece: of
/// kNormBlock elements, the tensor's last one of fewer. Block b of a tensor is its elements from
/// b * kNormBlock on. Other slots are left as they are, if `shared`: fill them with 0.
struct NormPartials {
  static constexpr std::string_view kName = "norm_partials";
  /// Some consecutive blocks of a gradient.
  struct Piece {
    std::int64_t first = 0;  ///< the piece's first element in its tensor, a multiple of kNormBlock
    std::int64_t elements;   ///< of the piece; a multiple of kNormBlock if the tensor goes on
    std::int64_t slot = 0;   ///< of the tensor's block 0; block b has slot + b
    /// Elements of the tensor that count as 0: another rank answers for them.
    execution::Range left_out = {0, 0};
  };
  std::vector<Piece> pieces;
  std::int64_t slots;
  execution::Dtype storage;
  bool shared = false;
  execution::Dtype gradient_type = execution::accumulation(storage);  ///< of sums, or bf16

  /// Of one piece, whose elements it has alone.
  template <class T>
  struct Gradient {
    RowsOfType<T, const Either> gradient;
  };
  template <class T>
  struct Operands {
    RowsOfType<T, double> partials;
    ListOf<T, Gradient> gradients;
  };
  void each(auto&& f, auto&... o) const {
    f(sum("partials", shared, execution::Dtype::fp64, {slots}), o.partials...);
    for (std::size_t i = 0; i < pieces.size(); ++i)
      f(in("gradient", gradient_type, {pieces[i].elements}).in_any_shape(),
        o.gradients[i].gradient...);
  }
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// The same of what a step has changed: partials[slot + b] = the sum of squares of weight - before,
/// differences in the type of sums, where `asked` is not 0. Where it is 0 nothing is read or
/// written.
struct ChangePartials {
  static constexpr std::string_view kName = "change_partials";
  std::vector<NormPartials::Piece> pieces;
  std::int64_t slots;
  execution::Dtype storage;
  bool has_master;  ///< weights are masters, of the type of sums

  /// Of one piece.
  template <class T>
  struct Tensors {
    RowsOfType<T, const Either> weight, before;
  };
  template <class T>
  struct Operands {
    Of<T, const std::int32_t> asked;
    RowsOfType<T, double> partials;
    ListOf<T, Tensors> tensors;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype of_weights = has_master ? execution::accumulation(storage) : storage;
    f(in("asked", execution::Dtype::int32, {1}), o.asked...);
    f(sum("partials", true, execution::Dtype::fp64, {slots}), o.partials...);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      f(in("weight", of_weights, {pieces[i].elements}).in_any_shape(), o.tensors[i].weight...);
      f(in("before", of_weights, {pieces[i].elements}).in_any_shape(), o.tensors[i].before...);
    }
  }
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// norm = sqrt of the sum of partials. step_ok is set to 0 when the norm is not finite (one NaN or
/// infinity in any gradient makes it so), else left as it is: it starts as 1 at the beginning of a
/// step.
struct NormFinish {
  static constexpr std::string_view kName = "norm_finish";
  std::int64_t slots;
  execution::Dtype storage;
  bool keeps_ok = true;  ///< false: step_ok holds nothing before

  template <class T>
  struct Operands {
    RowsOfType<T, const double> partials;
    RowsOfType<T, Sums> norm;
    Of<T, std::int32_t> step_ok;
  };
  void each(auto&& f, auto&... o) const {
    f(in("partials", execution::Dtype::fp64, {slots}), o.partials...);
    f(out("norm", execution::accumulation(storage), {1}), o.norm...);
    f(sum("step_ok", keeps_ok, execution::Dtype::int32, {1}), o.step_ok...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// sums[i] = the sum of the partials of parts[i], in the order of norm_block.hpp; 0 of none.
struct PartSums {
  static constexpr std::string_view kName = "part_sums";
  std::vector<execution::Range> parts;  ///< slots
  std::int64_t slots;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    RowsOfType<T, const double> partials;
    Of<T, double> sums;
  };
  void each(auto&& f, auto&... o) const {
    f(in("partials", execution::Dtype::fp64, {slots}), o.partials...);
    f(out("sums", execution::Dtype::fp64, {static_cast<std::int64_t>(parts.size())}), o.sums...);
  }
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
