#pragma once

#include <deque>
#include <string>
#include <vector>

#include "drivers/bench_kernels/case.hpp"
#include "execution/program.hpp"
#include "layers/recording/config.hpp"

namespace stowage::drivers::bench {

/// An operator of a mixer, under the name that the layer gives it: "fc1_weight_backward".
struct RecordedOp {
  std::string name;
  bool backward = false;
  execution::Op op;
};

/// The operators of a mixer of a model, recorded by layers/: one microbatch in bf16 on one rank,
/// forward and backward, in the order of a training step. Beside what the layer names, there are
/// its input "x", the gradient "dy" of its output, "cu_seqlens" and "seq_idx".
class RecordedMixer {
 public:
  /// @param model its pattern is one letter, M or E  @param length tokens of each document
  /// @param accumulate gradients are added to those of a microbatch before
  RecordedMixer(const layers::ModelConfig& model, std::int64_t documents, std::int64_t length,
                bool accumulate);

  execution::Cost cost() const;
  const execution::TensorInfo& info(execution::Tensor tensor) const {
    return program_.info(tensor);
  }
  /// As the layer calls it: "in_proj_out", "layer.mamba.A_log", "gradient/layer.mamba.A_log".
  std::string name(execution::Tensor tensor) const { return short_name(info(tensor).name); }

  std::vector<RecordedOp> ops;  ///< a case leaves out what it does not measure

 private:
  std::string short_name(const std::string& full) const;

  execution::Program program_{"mixer"};
  std::string prefix_;  ///< of the microbatch's names
};

/// A recorded operator with its operands.
struct BoundOp {
  std::string name;
  bool backward;
  execution::Cost cost;
  execution::Launch launch;
  std::vector<void*> addresses;
  std::vector<execution::View> views;  ///< of the addresses

  void enqueue(execution::Queue& queue) const { launch(queue, views); }
};

/// A case of recorded operators. Each tensor has memory of its own, so an operator that runs alone
/// finds what the whole left; recordings share those of one name and shape.
class RecordedCase : public Case {
 protected:
  explicit RecordedCase(Processor& processor) : processor_(processor) {}

  std::vector<BoundOp> bind(RecordedMixer recording);
  Operand& find(const std::string& name);
  std::vector<std::int32_t> integers(const std::string& name);

  Processor& processor_;
  std::deque<Operand> tensors_;

 private:
  Operand& operand(const RecordedMixer& recording, const execution::Use& use);

  std::deque<RecordedMixer> recordings_;
};

/// What the cases record, without memory for it. The convolution and the scan of a mixer between
/// its projections have one of three forms; a layer of experts is named by its parts.
RecordedMixer record_mixer(const Shape& shape, layers::ModelConfig::Mamba::Form form,
                           bool backward);
RecordedMixer record_moe_layer(const Shape& shape);

/// The cases themselves.
std::unique_ptr<Case> make_mixer(Processor& processor, const Shape& shape, std::int64_t seed,
                                 bool backward);
std::unique_ptr<Case> make_moe_layer(Processor& processor, const Shape& shape, std::int64_t seed);

}  // namespace stowage::drivers::bench
