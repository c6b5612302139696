#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/recording/kind.hpp"
#include "layers/recording/partition.hpp"
#include "layers/recording/roundings.hpp"
#include "parallel/groups/ranks.hpp"

namespace stowage::layers {

/// What stands between the norm and the residual sum: attention, Mamba-2, MLP or MoE.
///
/// forward() records the ops of one microbatch and keeps the handles of what it saved in the
/// recording (Recorder::kept); backward() uses them. Both are called once per microbatch of a
/// recording, backward in reverse order.
class Mixer {
 public:
  virtual ~Mixer() = default;

  /// What its products do with forward's x.
  virtual Rounding input_rounding() const { return Rounding::none; }
  /// Its parameters, in the order in which backward finishes their gradients.
  virtual const std::vector<Parameter>& parameters() const = 0;

  /// @param x (rows, D) normed input of this rank's rows  @return (rows, D), to be added to the
  /// residual stream
  virtual Tensor forward(Recorder& recorder, Tensor x) const = 0;
  /// @param dy gradient of forward's result  @return gradient of x
  virtual Tensor backward(Recorder& recorder, Tensor dy) const = 0;
  /// Work at the end of a step, such as the update of expert biases.
  virtual void end_of_step(Recorder&, Tensor /*step_ok*/) const {}
  /// Optimizer-like tensors that it owns besides parameters: names, dtypes, shapes.
  virtual std::vector<execution::TensorInfo> states(Precision) const { return {}; }
  /// forward() of one more token of each sequence, by what sequence_states() keep of those before.
  /// @param x (sequences, D)  @return none: it has no such form
  virtual Tensor decode(Recorder&, Tensor /*x*/) const { return {}; }
  /// What decode() keeps, of lifetime sequence_state, the sequence as the first extent.
  virtual std::vector<execution::TensorInfo> sequence_states(Precision, const DecodeShape&) const {
    return {};
  }
  /// Counts to be summed over ranks before end_of_step, and how many they are.
  virtual std::vector<Tensor> step_counts(Recorder&) const { return {}; }
  virtual std::int64_t step_count_elements() const { return 0; }
};

/// What a mixer is made of: it has this rank's part of its weights, and exchanges rows for it.
struct MixerPlace {
  const ModelConfig& config;
  const parallel::Ranks& ranks;
  std::string prefix;    ///< of its parameters' names: "layers.3"
  int layer;             ///< its number in the model
  double aux_scale = 1;  ///< see Model

  /// How tensor ranks share it.
  Partition tensor() const { return Partition(ranks.group(parallel::Group::tensor)); }
  /// What its products round to.
  ProductFormats formats() const { return config.product_formats(layer); }
};

/// @throws Error (exit 2) if heads, groups, widths or experts do not divide among the ranks
using MakeMixer = std::unique_ptr<Mixer> (*)(const MixerPlace& place);
std::unique_ptr<Mixer> make_mixer(const Kind& kind, const MixerPlace& place);

/// The residual stream between layers: its value is x + delta, added by the next norm.
struct Stream {
  Tensor x;      ///< (n, D)
  Tensor delta;  ///< (n, D), or none before the first layer
};

/// A pre-norm residual block: x + mixer(rmsnorm(x)).
class Layer {
 public:
  Layer(const Kind& kind, const MixerPlace& place);

  const Kind& kind() const { return *kind_; }
  const Mixer& mixer() const { return *mixer_; }
  int index() const { return index_; }
  /// Of the names of its ops and activations: "layers.3.mamba".
  std::string prefix() const;
  /// Parameters in backward order: the mixer's, then the norm's.
  std::vector<Parameter> parameters() const;
  /// Those whose gradients this microbatch's backward has left for later, or the others.
  std::vector<Parameter> parameters(Recorder& recorder, bool later) const;

  Stream forward(Recorder& recorder, Stream stream) const;
  /// The same of one more token of each sequence.
  /// @throws Error (exit 2) that names its letter if its kind has no such form
  Stream decode(Recorder& recorder, Stream stream) const;
  /// @param dsum gradient of the stream after this layer  @return gradient of the stream before it
  Tensor backward(Recorder& recorder, Tensor dsum) const;
  /// What backward has left of the weights' gradients.
  void backward_weights(Recorder& recorder) const;

 private:
  struct Saved {
    Tensor sum, normed, rstd;
    Tensor amax;  ///< of normed, if it is rounded
    PostponedOps weights;
  };

  /// Of the stream. @return what the mixer takes
  Tensor norm(Recorder& recorder, const Stream& stream) const;
  void record_norm(Recorder& recorder, const Stream& stream, const Saved& kept) const;

  const Kind* kind_;
  std::int64_t width_;
  double epsilon_;
  bool zero_centred_;
  std::string name_;  ///< "layers.3"
  int index_;
  std::unique_ptr<Mixer> mixer_;
  Parameter norm_;
  Rounding gradient_rounding_;  ///< of the gradient that it hands to the layer before
};

}  // namespace stowage::layers
