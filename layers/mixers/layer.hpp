#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/recording/config.hpp"
#include "layers/recording/recorder.hpp"
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

  /// Its parameters, in the order in which backward finishes their gradients.
  virtual const std::vector<Parameter>& parameters() const = 0;
  /// Scope kind: "attn", "mamba", "mlp" or "moe".
  virtual std::string_view scope() const = 0;
  /// Module names of the saved layer input and of the saved normed input.
  virtual std::string_view norm_module() const = 0;
  virtual std::string_view input_module() const = 0;

  /// @param x (rows, D) normed input of this rank's rows  @return (rows, D), to be added to the
  /// residual stream
  virtual Tensor forward(Recorder& recorder, Tensor x) const = 0;
  /// @param dy gradient of forward's result  @return gradient of x
  virtual Tensor backward(Recorder& recorder, Tensor dy) const = 0;
  /// Work at the end of a step, such as the update of expert biases.
  virtual void end_of_step(Recorder&, Tensor /*step_ok*/) const {}
  /// Optimizer-like tensors that it owns besides parameters: names, dtypes, shapes.
  virtual std::vector<execution::TensorInfo> states(Precision) const { return {}; }
  /// Counts to be summed over ranks before end_of_step, and how many they are.
  virtual std::vector<Tensor> step_counts(Recorder&) const { return {}; }
  virtual std::int64_t step_count_elements() const { return 0; }
};

/// The residual stream between layers: its value is x + delta, added by the next norm.
struct Stream {
  Tensor x;      ///< (n, D)
  Tensor delta;  ///< (n, D), or none before the first layer
};

/// A pre-norm residual block: x + mixer(rmsnorm(x)).
class Layer {
 public:
  Layer(const ModelConfig& config, const parallel::Ranks& ranks, int index,
        std::unique_ptr<Mixer> mixer);

  const Mixer& mixer() const { return *mixer_; }
  const Parameter& norm() const { return norm_; }
  int index() const { return index_; }
  /// Parameters in backward order: the mixer's, then the norm's.
  std::vector<Parameter> parameters() const;

  Stream forward(Recorder& recorder, Stream stream) const;
  /// @param dsum gradient of the stream after this layer  @return gradient of the stream before it
  Tensor backward(Recorder& recorder, Tensor dsum) const;
  /// What backward has left of the weights' gradients.
  void backward_weights(Recorder& recorder) const;

 private:
  struct Saved {
    Tensor sum, normed, rstd;
    PostponedOps weights;
  };

  std::string prefix() const;
  void record_norm(Recorder& recorder, const Stream& stream, const Saved& kept) const;

  std::int64_t width_;
  double epsilon_;
  int index_;
  std::unique_ptr<Mixer> mixer_;
  Parameter norm_;
};

/// The mixers, by letter. Each has this rank's part of its weights, and exchanges rows for it.
/// `layer` is the number in the model.
/// @throws Error (exit 2) if heads, groups, widths or experts do not divide among the ranks
std::unique_ptr<Mixer> make_attention(const ModelConfig& config, const parallel::Ranks& ranks,
                                      const std::string& prefix);
std::unique_ptr<Mixer> make_mamba(const ModelConfig& config, const parallel::Ranks& ranks,
                                  const std::string& prefix);
std::unique_ptr<Mixer> make_mlp(const ModelConfig& config, const parallel::Ranks& ranks,
                                const std::string& prefix);
std::unique_ptr<Mixer> make_moe(const ModelConfig& config, const parallel::Ranks& ranks,
                                const std::string& prefix, int layer, double aux_scale);

}  // namespace stowage::layers
