#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "execution/program.hpp"
#include "layers/parameters.hpp"

namespace stowage::layers {

using execution::Access;
using execution::Cost;
using execution::Launch;
using execution::Program;
using execution::Tensor;
using execution::Use;

inline Use read(Tensor tensor) { return {tensor, Access::read}; }
inline Use write(Tensor tensor) { return {tensor, Access::write}; }
inline Use update(Tensor tensor) { return {tensor, Access::update}; }

/// The tensors that all layers of one microbatch read.
struct Batch {
  std::int64_t tokens_count = 0;     ///< n = B * T
  std::int64_t attention_pairs = 0;  ///< (query, key) pairs, for costs
  Tensor tokens;                     ///< (n) int32
  Tensor targets;                    ///< (n) int32, -1: counts in no loss
  Tensor cu_seqlens;                 ///< (C + 1) int32
  Tensor seq_idx;                    ///< (n) int32
  Tensor loss_scale;                 ///< (1) accum: 1 / counted targets of the whole step
  int slot = 0;                      ///< which microbatch of the program: first, body or last
  bool accumulate = false;           ///< gradients are added: not the first microbatch of a step
};

/// Appends the ops of one microbatch to a program: adds the names, the types and the gradients'
/// access that every layer would otherwise repeat.
class Recorder {
 public:
  Recorder(Program& program, Precision precision, Batch batch)
      : program_(program), precision_(precision), batch_(batch) {}

  Program& program() { return program_; }
  const Batch& batch() const { return batch_; }
  std::int64_t tokens() const { return batch_.tokens_count; }
  execution::Dtype storage() const { return precision_.storage; }
  execution::Dtype accumulation() const { return precision_.accumulation(); }

  /// Names recorded from here on start with this: "layers.3.mamba".
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }
  const std::string& prefix() const { return prefix_; }

  /// Activations of the storage dtype, or of another one.
  Tensor saved(std::string_view name, std::vector<std::int64_t> shape, std::string_view module);
  Tensor saved(std::string_view name, execution::Dtype dtype, std::vector<std::int64_t> shape,
               std::string_view module);
  Tensor scratch(std::string_view name, std::vector<std::int64_t> shape);
  Tensor scratch(std::string_view name, execution::Dtype dtype, std::vector<std::int64_t> shape);
  /// Scratch bytes for one op, at least one; of what is lent if that has as many.
  Tensor workspace(std::string_view name, std::size_t bytes);

  Tensor parameter(const Parameter& parameter);
  Tensor gradient(const Parameter& parameter);
  /// A gradient's use: stored by the first microbatch, added to by later ones.
  Use into(Tensor gradient) const {
    return {gradient, batch_.accumulate ? Access::update : Access::write};
  }

  /// Until it is called again, ops may work in the bytes of this tensor, which is written later.
  void lend(Tensor tensor) { lent_ = tensor; }

  void compute(std::string_view name, Cost cost, std::vector<Use> uses, Launch launch);
  /// An op that the step does not run: it computes again what another op wrote, bit by bit, from
  /// what is kept for backward.
  void rerun_only(std::string_view name, Cost cost, std::vector<Use> uses, Launch launch);

 private:
  std::string full_name(std::string_view name) const;
  void append(std::string_view name, Cost cost, std::vector<Use> uses, Launch launch,
              bool only_rerun);

  Program& program_;
  Precision precision_;
  Batch batch_;
  std::string prefix_;
  Tensor lent_;
};

}  // namespace stowage::layers
