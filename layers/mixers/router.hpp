#pragma once

#include <string>
#include <vector>

#include "kernels/moe/router.hpp"
#include "layers/mixers/layer.hpp"
#include "layers/mixers/products.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::layers {

/// Name of the sums of all routers' load-balancing and z losses, (2) accum, in programs that ask
/// for them.
inline constexpr const char* kRouterLosses = "router_losses";
/// Name of those of each layer of the whole model of one microbatch, (layers + 1, 2) accum, where
/// microbatches store them apart (StepValues).
inline constexpr const char* kLayerLosses = "layer_losses";

/// Where each of this rank's rows goes. Kept for backward; never moved by a plan.
struct Choices {
  Tensor logits;   ///< (rows, E) accum
  Tensor indices;  ///< (rows, R) int32
  Tensor weights;  ///< (rows, R) accum
  Tensor offsets;  ///< (E + 1) int32: rows of the experts below each, of all tokens
  Tensor load;     ///< the same of this rank's rows
};

/// The router of a MoE layer: logits, choice and weights of a rank's rows; and its expert biases.
class Router {
 public:
  /// @param tensor ranks that share the rows  @param layer its number in the model
  /// @param aux_scale 1 / (microbatches * ranks with other sequences), for the auxiliary losses
  Router(const ModelConfig& config, const Partition& tensor, const std::string& prefix, int layer,
         double aux_scale);

  const Parameter& parameter() const { return gate_.weight; }
  const kernels::RouterOptions& options() const { return options_; }
  std::vector<execution::TensorInfo> states(Precision precision) const;
  /// Rows of each expert of the whole step, (E) accum; made by the first microbatch of a step.
  Tensor load(Recorder& recorder) const { return recorder.kept_of_step<Load>(*this).rows; }

  /// Logits, indices and weights; the caller knows the counts.
  Choices forward(Recorder& recorder, Tensor x) const;
  /// Adds the gradient through the weights to dx.
  /// @param dweights accum, a number for each row of `token_row` (rows, R)
  void backward(Recorder& recorder, const Choices& choices, Tensor x, Tensor dweights,
                Tensor token_row, Tensor dx) const;
  /// Counts the microbatch's rows into load(), and adds its auxiliary losses to the program's
  /// tensor kRouterLosses if there is one.
  void count(Recorder& recorder, const Choices& choices) const;
  void update_bias(Recorder& recorder, Tensor step_ok) const;

 private:
  struct Load {
    Tensor rows;
  };

  execution::TensorInfo bias_info(Precision precision) const;
  execution::TensorInfo frozen_info() const;
  Tensor bias(Recorder& recorder) const;
  void choose(Recorder& recorder, const Choices& choices) const;
  void add_losses(Recorder& recorder, const Choices& choices) const;
  /// Of this rank's rows.
  kernels::RouterOptions options(const Recorder& recorder) const;

  kernels::RouterOptions options_;
  double bias_rate_;
  std::int64_t frozen_tokens_;
  std::string prefix_;
  Product gate_;
};

}  // namespace stowage::layers
