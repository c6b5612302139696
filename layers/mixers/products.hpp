#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "layers/recording/recorder.hpp"

namespace stowage::layers {

/// A matrix product y = x w^T and its gradients as recorded ops: shared by all layers. A quantised
/// one computes all three in 8 bits (kernels/fp8/quantise.hpp): each factor, or the rows of it that
/// a product takes, is rounded with a scale of its own just before it is used. Activations and
/// weights are e4m3. It needs rows, outputs and inputs in multiples of 16.
struct Product {
  Parameter weight;                                    ///< (outputs, inputs)
  std::optional<execution::Dtype> fp8_gradients = {};  ///< none: it is not quantised

  std::int64_t outputs() const { return weight.local(0); }
  std::int64_t inputs() const { return weight.local(1); }

  /// y (n, outputs), of a tensor that the caller made, of storage or accumulation dtype.
  /// @param some of the outputs, which are the columns of y; none: all
  void forward(Recorder& recorder, std::string_view name, const SomeRows& x, const SomeRows& y,
               execution::Range some = {}) const;
  /// dx (n, inputs) from dy: stored, or added when `accumulate`.
  void backward_input(Recorder& recorder, std::string_view name, const SomeRows& dy,
                      const SomeRows& dx, bool accumulate = false) const;
  /// The weight's gradient, stored or added as the microbatch asks. It may be left for later.
  void backward_weight(Recorder& recorder, std::string_view name, Tensor dy, Tensor x,
                       WeightsPosition position = WeightsPosition::in_place) const;
  /// Both in one op, dx added: for few outputs, where reading x and dx is what costs.
  void backward(Recorder& recorder, std::string_view name, Tensor dy, Tensor x, Tensor dx) const;

 private:
  /// A quantised factor: its payload, the transpose of it, and its scale.
  struct Factor {
    Tensor payload, transposed, scale;
    execution::Dtype dtype;
  };
  /// dy whole, which both gradients are made from.
  struct Gradient {
    Tensor of;
    Factor factor;
  };

  template <class Record>
  Factor quantise(Recorder& recorder, std::string_view name, const SomeRows& x,
                  execution::Dtype format, bool plain, bool transposed, const Record& record) const;
  Factor quantise(Recorder& recorder, std::string_view name, const SomeRows& x,
                  execution::Dtype format, bool plain, bool transposed) const;
  Factor gradient(Recorder& recorder, std::string_view name, const SomeRows& dy) const;
};

}  // namespace stowage::layers
