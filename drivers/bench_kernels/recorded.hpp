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

/// The operators of a mixer of a model, recorded by layers/: one microbatch on one rank, forward
/// and backward, in the order of a training step. Beside what the layer names, there are its input
/// "x", the gradient "dy" of its output, "cu_seqlens" and "seq_idx".
class RecordedMixer {
 public:
  /// @param model its pattern is one letter, M or E  @param length tokens of each document
  /// @param accumulate gradients are added to those of a microbatch before
  /// @throws Error (exit 2) for another pattern
  RecordedMixer(const layers::ModelConfig& model, std::int64_t documents, std::int64_t length,
                bool accumulate, execution::Dtype storage = execution::Dtype::bf16);

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
  RecordedOp recorded;
  std::vector<void*> addresses;
  std::vector<execution::View> views;  ///< of the addresses

  const std::string& name() const { return recorded.name; }
  execution::Cost cost() const { return recorded.op.cost; }
  void enqueue(execution::Queue& queue) const { recorded.op.launch(queue, views); }
};

/// The operands of recordings. Each tensor has memory of its own, so an operator that runs alone
/// finds what the whole left; recordings share those of one name and shape.
class RecordedTensors {
 public:
  explicit RecordedTensors(run::Processor& processor) : processor_(processor) {}

  std::vector<BoundOp> bind(RecordedMixer recording);
  /// @throws Error if no operator uses a tensor of this name
  Operand& operator[](const std::string& name);
  /// The elements of a tensor of int32.
  std::vector<std::int32_t> integers(const std::string& name);
  std::vector<Operand*> all();

 private:
  Operand& operand(const RecordedMixer& recording, const execution::Use& use);

  run::Processor& processor_;
  std::deque<Operand> tensors_;
  std::deque<RecordedMixer> recordings_;
};

/// What the cases record, without memory for it: a mixer between its projections, in one of its
/// forms, and a layer of experts by the names of its parts.
RecordedMixer record_mixer(const Shape& shape, layers::ModelConfig::Mamba::Form form, bool backward,
                           execution::Dtype storage = execution::Dtype::bf16);
RecordedMixer record_moe_layer(const Shape& shape);

/// The cases themselves.
std::unique_ptr<Case> make_mixer(run::Processor& processor, const Shape& shape, std::int64_t seed,
                                 bool backward);
std::unique_ptr<Case> make_moe_layer(run::Processor& processor, const Shape& shape,
                                     std::int64_t seed);

}  // namespace stowage::drivers::bench
