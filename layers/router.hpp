#pragma once

#include <string>
#include <vector>

#include "kernels/moe/router.hpp"
#include "layers/layer.hpp"
#include "layers/products.hpp"

namespace stowage::layers {

/// Name of the sums of all routers' load-balancing and z losses, (2) accum, in programs that ask
/// for them.
inline constexpr const char* kRouterLosses = "router_losses";

/// Where each token of a microbatch goes. Kept for backward; never moved by a plan.
struct Routing {
  Tensor logits;      ///< (n, E) accum
  Tensor indices;     ///< (n, R) int32
  Tensor weights;     ///< (n, R) accum
  Tensor offsets;     ///< (E + 1) int32
  Tensor token_row;   ///< (n, R) int32
  Tensor row_weight;  ///< (n * R) accum
};

/// The router of a MoE layer: logits, choice, weights, order of rows; and its expert biases.
class Router {
 public:
  /// @param aux_scale 1 / (microbatches * ranks), for the auxiliary losses
  Router(const ModelConfig& config, const std::string& prefix, double aux_scale);

  const Parameter& parameter() const { return gate_.weight; }
  const kernels::RouterOptions& options() const { return options_; }
  std::vector<execution::TensorInfo> states(Precision precision) const;
  /// Rows of each expert of the whole step, (E) accum; made by the first microbatch of a step.
  Tensor load(Recorder& recorder) const { return recorder.kept_of_step<Load>(*this).rows; }

  Routing forward(Recorder& recorder, Tensor x) const;
  /// Adds the gradient through the weights to dx. @param drow_weight (n * R) accum
  void backward(Recorder& recorder, const Routing& routing, Tensor x, Tensor drow_weight,
                Tensor dx) const;
  /// Counts the microbatch's rows into load(), and adds its auxiliary losses to the program's
  /// tensor kRouterLosses if there is one.
  void count(Recorder& recorder, const Routing& routing) const;
  void update_bias(Recorder& recorder, Tensor step_ok) const;

 private:
  struct Load {
    Tensor rows;
  };

  execution::TensorInfo bias_info(Precision precision) const;
  execution::TensorInfo frozen_info() const;
  Tensor bias(Recorder& recorder) const;
  void choose(Recorder& recorder, const Routing& routing) const;
  void add_losses(Recorder& recorder, const Routing& routing) const;

  kernels::RouterOptions options_;
  double bias_rate_;
  std::int64_t frozen_tokens_;
  std::string prefix_;
  Product gate_;
};

}  // namespace stowage::layers
