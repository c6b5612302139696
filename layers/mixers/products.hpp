#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/activation/kind.hpp"
#include "kernels/buffer_of.hpp"
#include "layers/recording/partition.hpp"
#include "layers/recording/precision.hpp"
#include "layers/recording/roundings.hpp"

namespace stowage::layers {

/// Rows that a product takes. A quantised one applies an activation to them as it rounds.
struct ProductInput : SomeRows {
  /// Some rows of a tensor that is there.
  ProductInput(Tensor of, execution::Range some = {},  // NOLINT(google-explicit-constructor)
               std::optional<kernels::Activation> then = {})
      : SomeRows(of, some), activation(then) {}
  /// Rows beside which others may still come.
  ProductInput(const SomeRows& of)  // NOLINT(google-explicit-constructor): no activation
      : SomeRows(of), complete(of.rows == execution::Range{}) {}

  std::optional<kernels::Activation> activation;
  bool complete = true;  ///< is the whole tensor there?
};

/// A matrix product y = x w^T and its gradients as recorded ops: shared by all layers. A quantised
/// one computes all three in 8 bits (kernels/fp8/quantise.hpp): each factor, or the rows of it that
/// a product takes, is rounded with a scale of its own. It needs rows, outputs and inputs in
/// multiples of 16.
///
/// A factor is rounded once where that serves: a weight in a step, by the first microbatch, and x
/// where backward needs nothing else of it (layers/recording/roundings.hpp). Of what ranks gather
/// each rounds its own rows (shared_input, shared_gradient): products take the payload as it is.
struct Product {
  Parameter weight;             ///< (outputs, inputs)
  ProductFormats formats = {};  ///< of its factors

  std::int64_t outputs() const { return weight.local(0); }
  std::int64_t inputs() const { return weight.local(1); }
  bool quantised() const { return formats.quantised(); }
  /// What it does with x.
  Rounding rounding() const {
    if (!quantised()) return Rounding::none;
    return formats.precision->saves_factors ? Rounding::saved : Rounding::measured;
  }

  /// What `rows` gathers for this product in place of x, or of dy, of this rank's rows. If it is
  /// quantised and others have rows too: the payload of these, with the scale of the rows of all.
  /// Each rank's largest magnitude goes to all of them before, so a scale is that of one rank which
  /// has all rows.
  Tensor shared_input(Recorder& recorder, const std::string& name, Tensor x,
                      const SharedRows& rows) const;
  Tensor shared_gradient(Recorder& recorder, const std::string& name, Tensor dy,
                         const SharedRows& rows) const;

  /// y (n, outputs), of a tensor that the caller made, of storage or accumulation dtype.
  /// @param some of the outputs, which are the columns of y; none: all
  void forward(Recorder& recorder, std::string_view name, const ProductInput& x, const SomeRows& y,
               execution::Range some = {}) const;
  /// dx (n, inputs) from dy: stored, or added when `accumulate`.
  void backward_input(Recorder& recorder, std::string_view name, const SomeRows& dy,
                      const SomeRows& dx, bool accumulate = false) const;
  /// The weight's gradient, stored or added as the microbatch asks. It may be left for later.
  void backward_weight(Recorder& recorder, std::string_view name, Tensor dy, const ProductInput& x,
                       WeightsPosition position = WeightsPosition::in_place) const;
  /// Both in one op, dx added: for few outputs, where reading x and dx is what costs.
  void backward(Recorder& recorder, std::string_view name, Tensor dy, Tensor x, Tensor dx) const;

 private:
  /// Bytes of a quantised factor, or of some of its rows, and their scale.
  struct Payload {
    kernels::BufferOf<Tensor> bytes, scale;

    explicit operator bool() const { return static_cast<bool>(bytes.whole); }
  };
  /// A quantised factor and its transpose, of which either may be left out.
  struct Factor {
    Payload plain, transposed;
  };
  /// A whole tensor that was quantised, for all products that take it.
  struct Rounded {
    Tensor of;
    Factor factor;
  };
  struct RoundedInput : Rounded {};
  struct RoundedGradient : Rounded {};
  /// Which of a factor's tensors are wanted, and the module that the last of them is saved under.
  struct Wanted {
    bool plain, transposed;
    std::string_view module = {};
  };

  template <class Record>
  Tensor largest(Recorder& recorder, std::string_view name, const ProductInput& x,
                 const Record& record) const;
  /// @param magnitudes of all that has the scale of x; none: of x alone
  template <class Record>
  Factor quantise(Recorder& recorder, std::string_view name, const ProductInput& x,
                  execution::Dtype format, const Wanted& wanted, const Record& record,
                  Tensor magnitudes = {}) const;
  Factor quantise(Recorder& recorder, std::string_view name, const ProductInput& x,
                  execution::Dtype format, const Wanted& wanted) const;
  /// @param again backward rounds it once more, if its payload does not stay
  Tensor shared(Recorder& recorder, const std::string& name, Tensor mine, const SharedRows& rows,
                execution::Dtype format, bool again) const;
  template <class Record>
  Payload transposed(Recorder& recorder, std::string_view name, Tensor payload,
                     const Record& record) const;
  Payload input(Recorder& recorder, std::string_view name, const ProductInput& x) const;
  Payload whole_weight(Recorder& recorder, std::string_view name, bool forward) const;
  Factor gradient(Recorder& recorder, std::string_view name, const SomeRows& dy) const;
};

}  // namespace stowage::layers
