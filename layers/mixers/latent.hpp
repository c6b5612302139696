#pragma once

#include <optional>
#include <vector>

#include "layers/mixers/layer.hpp"
#include "layers/mixers/products.hpp"

namespace stowage::layers {

/// The narrower width L that the routed experts of a layer work in (latent MoE of Nemotron 3 Super;
/// Kimi K3 with a norm): x W1^T (n, L) before them, and [rmsnorm of] the sum of what they give,
/// times W2^T (n, D), behind. Each rank does both for its own rows, so that rows of width L travel.
class Latent {
 public:
  explicit Latent(const MixerPlace& place);

  /// In the order in which backward finishes their gradients.
  std::vector<Parameter> parameters() const;

  /// @param x (n, D)  @return (n, L), saved
  Tensor narrow(Recorder& recorder, Tensor x) const;
  /// Where the experts' sum is to be, (n, L): saved.
  Tensor make_sum(Recorder& recorder) const;
  /// @return (n, D) of that sum
  Tensor widen(Recorder& recorder) const;
  /// @param dy (n, D)  @return the gradient of the experts' sum, (n, L)
  Tensor widen_backward(Recorder& recorder, Tensor dy) const;
  /// Stores the gradient of x.  @param drows (n, L)
  void narrow_backward(Recorder& recorder, Tensor x, Tensor drows, Tensor dx) const;

 private:
  struct Saved {
    Tensor sum, rstd;
  };
  /// What the second product takes.  @param name of the norm
  Tensor normed(Recorder& recorder, const char* name) const;

  std::int64_t width_;   ///< D
  std::int64_t latent_;  ///< L
  double epsilon_;
  Product fc1_;  ///< (L, D)
  Product fc2_;  ///< (D, L)
  std::optional<Parameter> norm_;
};

}  // namespace stowage::layers
