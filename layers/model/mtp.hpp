#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "layers/mixers/layer.hpp"
#include "layers/mixers/products.hpp"
#include "layers/model/embedding.hpp"
#include "layers/model/head.hpp"

namespace stowage::layers {

/// Name of the loss of the tokens that lie `depth` tokens behind the next one: its sum and the
/// number of counted targets, (2) accum. Training steps have it; evaluations that ask for it do.
std::string mtp_loss_name(int depth);

/// Heads that predict further tokens (multi-token prediction; DeepSeek-V3, arXiv 2412.19437,
/// section 2.2, as Nemotron 3 has it). At depth k, of token i of a document:
///
///   h_k = norm(block(W [norm(embedding of token i + k), norm(h_(k - 1))])),  h_0 the model's last
///   normed hidden rows;  the loss of depth k is that of h_k's logits for token i + k + 1
///
/// The step minimises loss + factor / depths * (sum of the depths' losses), each a sum over its own
/// counted targets divided by the count of the model's. Targets are those of the model, shifted
/// within documents: a mask that leaves one out leaves it out at every depth. Embedding and output
/// weight are the model's. All depths have one block, or each its own.
///
/// W is kept as its two halves, so that what it makes is a stream of two summands, which the first
/// norm of the block adds.
class Mtp {
 public:
  /// @param embedding the model's
  Mtp(const ModelConfig& config, const parallel::Ranks& ranks, const Embedding& embedding,
      double aux_scale);

  int depths() const { return depths_; }
  /// In the order in which backward finishes their gradients; without embedding and output weight.
  std::vector<Parameter> parameters() const;
  std::vector<execution::TensorInfo> states(Precision precision) const;
  /// See Mixer, of all layers of all blocks.
  std::vector<Tensor> step_counts(Recorder& recorder) const;
  std::int64_t step_count_elements() const;
  void end_of_step(Recorder& recorder, Tensor step_ok) const;

  using Finished = std::function<void(std::span<const Parameter>, bool exchange_follows)>;
  /// Records all depths, behind the model's own head, and adds up their losses.
  /// @param hidden (rows, D) h_0
  void forward(Recorder& recorder, Tensor hidden) const;
  /// The same up to the losses alone.
  void evaluate(Recorder& recorder, Tensor hidden) const;
  /// The embedding's gradient is stored, or added where the head has stored it.
  /// @return gradient of h_0
  Tensor backward(Recorder& recorder, bool embedding_stored, const Finished& finished) const;
  void backward_weights(Recorder& recorder, const Finished& finished) const;

 private:
  /// What stands between one h and the next.
  struct Block {
    Parameter embedding_norm, hidden_norm;
    Product embedding_proj, hidden_proj;  ///< (D, D) each
    std::vector<Layer> layers;
    Head head;

    std::vector<Parameter> parameters() const;
  };
  struct Saved {
    Tensor embedding, hidden, embedding_rstd, hidden_rstd;
  };

  Block make_block(const ModelConfig& config, const parallel::Ranks& ranks, double aux_scale,
                   int index) const;
  const Block& block(int depth) const { return blocks_[blocks_.size() == 1 ? 0 : depth - 1]; }
  /// True if backward of this depth is the first of its block.
  bool is_first_of_block(int depth) const { return blocks_.size() > 1 || depth == depths_; }
  Stream enter(Recorder& recorder, const Block& block, Tensor hidden) const;
  Tensor norm(Recorder& recorder, const std::string& name, Tensor x, const Parameter& weight,
              Tensor rstd) const;
  Tensor norm_backward(Recorder& recorder, const std::string& name, Tensor dy, Tensor x,
                       const Parameter& weight, Tensor rstd) const;
  void add_losses(Recorder& recorder, Tensor losses, bool accumulate) const;

  int depths_;
  std::int64_t width_;
  double epsilon_;
  bool zero_centred_;
  Embedding embedding_;
  std::vector<Block> blocks_;
};

}  // namespace stowage::layers
