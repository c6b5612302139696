#pragma once

#include <any>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <typeindex>
#include <utility>
#include <vector>

#include "execution/program.hpp"
#include "kernels/moe/capacity.hpp"
#include "kernels/moe/row_tokens.hpp"
#include "kernels/operator.hpp"
#include "layers/recording/parameters.hpp"

namespace stowage::layers {

using execution::Access;
using execution::Cost;
using execution::Program;
using execution::Tensor;
using execution::Use;

using SomeRows = kernels::RowsOf<Tensor>;

inline Use read(Tensor tensor) { return {tensor, Access::read}; }
inline Use write(Tensor tensor) { return {tensor, Access::write}; }
inline Use update(Tensor tensor) { return {tensor, Access::update}; }

/// The innermost scope of a kind around an op of a program, or -1.
int enclosing(const Program& program, const execution::Op& op, std::string_view kind);

/// Sizes of a program of one more token of each of some sequences.
struct DecodeShape {
  std::int64_t sequences = 0;
  std::int64_t window = 0;  ///< tokens that each has at most
};

/// The tensors that all layers of one microbatch read.
struct Batch {
  std::int64_t sequence_tokens = 0;  ///< n = B * T, of all ranks that share the sequences
  std::int64_t tokens_count = 0;     ///< of them, those of which this rank's mixers compute …
  std::int64_t first_token = 0;      ///< … which begin at this one
  std::int64_t rows_count = 0;       ///< of them, those of this rank's residual stream …
  std::int64_t first_row = 0;        ///< the same share of tokens begins at this one
  kernels::RowTokens row_tokens;     ///< which tokens those rows are
  std::int64_t attention_pairs = 0;  ///< (query, key) pairs, for costs
  kernels::ExpertCapacity expert_capacity;  ///< of this rank's experts
  Tensor tokens;                            ///< (tokens) int32
  Tensor targets;                           ///< (tokens) int32, -1: counts in no loss
  Tensor sources;                           ///< (tokens) int32, see StackedInputs; mostly none
  Tensor cu_seqlens;                        ///< (C + 1) int32, of all n tokens
  Tensor seq_idx;                           ///< (tokens) int32
  Tensor sequence_seq_idx;                  ///< (n) int32
  Tensor loss_scale;                        ///< (1) accum: 1 / counted targets of the whole step
  Tensor positions;  ///< (tokens) int32: each is one more token of a sequence, at this position …
  DecodeShape decode;  ///< … of these
  /// What heads of further tokens take, in place of these, by how much further.
  struct Further {
    Tensor tokens, targets;
  };
  std::vector<Further> further;
  Tensor further_loss_scale;   ///< (1) accum
  int depth = 0;               ///< how much further than the next token the targets are
  int slot = 0;                ///< which microbatch of the program
  bool later = false;          ///< not the first microbatch of a step: its counts are added
  bool accumulate = false;     ///< gradients are added, too, not stored
  bool own_gradients = false;  ///< they are tensors of this microbatch alone
  bool weights_later = false;  ///< backward leaves what it can of the weights' gradients for later
};

/// When a layer's backward makes the gradient of a weight: where it is recorded, or at the end,
/// beside the rows that ranks exchange for the layer before.
enum class WeightsPosition : unsigned char { in_place, last };

/// Ops that were left for later, and how many ops the program had then.
struct PostponedOps {
  struct One {
    execution::Op op;
    std::size_t before = 0;
  };
  std::vector<One> ops;
};

/// What layers keep between the passes of one recording, by layer, slot and depth. Layers never
/// change themselves, so a model can be recorded any number of times.
class Handles {
 public:
  template <class Kept>
  Kept& of(const void* owner, int slot, int depth = 0) {
    std::any& kept = all_[{owner, std::type_index(typeid(Kept)), slot, depth}];
    if (!kept.has_value()) kept.emplace<Kept>();
    return std::any_cast<Kept&>(kept);
  }

 private:
  std::map<std::tuple<const void*, std::type_index, int, int>, std::any> all_;
};

/// Appends the ops of one microbatch to a program: adds the names, the types and the gradients'
/// access that every layer would otherwise repeat.
class Recorder {
 public:
  /// @param handles of the whole recording; outlives this
  Recorder(Program& program, Precision precision, Batch batch, Handles& handles)
      : program_(program), precision_(precision), batch_(std::move(batch)), handles_(handles) {}

  Program& program() { return program_; }
  const Batch& batch() const { return batch_; }
  /// Tokens that mixers of this rank work on, and rows of the residual stream between them: ranks
  /// that share the products of a layer also share its rows out.
  std::int64_t tokens() const { return batch_.tokens_count; }
  std::int64_t rows() const { return batch_.rows_count; }
  /// This rank's share of the tokens, as many as it has rows: elements of a tensor with so many for
  /// each token.
  execution::Range own_rows(std::int64_t each = 1) const {
    return {batch_.first_row * each, (batch_.first_row + batch_.rows_count) * each};
  }
  /// The handles that a layer keeps of this microbatch, empty at first.
  template <class Kept, class Owner>
  Kept& kept(const Owner& owner) {
    return handles_.of<Kept>(&owner, batch_.slot, batch_.depth);
  }
  /// Those that it keeps of the whole step.
  template <class Kept, class Owner>
  Kept& kept_of_step(const Owner& owner) {
    return handles_.of<Kept>(&owner, -1);
  }
  /// Of what predicts further tokens of this microbatch.
  Recorder at_depth(int depth, bool accumulate) const;
  execution::Dtype storage() const { return precision_.storage; }
  execution::Dtype accumulation() const { return precision_.accumulation(); }

  /// Names recorded from here on start with this: "layers.3.mamba".
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }
  const std::string& prefix() const { return prefix_; }

  /// Activations of the storage dtype, or of another one.
  Tensor saved(std::string_view name, std::vector<std::int64_t> shape, std::string_view module,
               execution::LeadingRows rows = {});
  Tensor saved(std::string_view name, execution::Dtype dtype, std::vector<std::int64_t> shape,
               std::string_view module, execution::LeadingRows rows = {});
  Tensor scratch(std::string_view name, std::vector<std::int64_t> shape);
  Tensor scratch(std::string_view name, execution::Dtype dtype, std::vector<std::int64_t> shape);
  /// Scratch bytes for one op, at least one.
  Tensor workspace(std::string_view name, std::size_t bytes);

  /// What is kept of each sequence from one of its tokens to the next.
  Tensor sequence_state(const execution::TensorInfo& info) { return program_.add(info); }
  Tensor parameter(const Parameter& parameter);
  Tensor gradient(const Parameter& parameter);
  /// The only buffer of a tensor.
  const execution::BufferInfo& buffer(Tensor tensor) const {
    return program_.info(tensor).buffers.front();
  }
  /// How many rows these are.
  std::int64_t count(const SomeRows& rows) const {
    return rows.rows == execution::Range{} ? buffer(rows.whole).shape.front()
                                           : rows.rows.end - rows.rows.begin;
  }
  /// A gradient's use: stored by the first microbatch, added to by later ones.
  Use into(Tensor gradient) const {
    return {gradient, batch_.accumulate ? Access::update : Access::write};
  }

  /// An operator: uses, cost and launch follow from its declaration.
  template <kernels::Operator Op>
  void compute(std::string_view name, const Op& op,
               const kernels::OperandsOf<Op, Tensor>& operands) {
    program_.append(named(name, kernels::recorded(op, operands)));
  }
  /// An op that is no operator; its name is given here.
  void compute(std::string_view name, execution::Op op) {
    program_.append(named(name, std::move(op)));
  }
  /// An op that makes gradients of weights alone: nothing else in backward waits for it, so a
  /// schedule may put it where a rank has nothing else to do.
  template <kernels::Operator Op>
  void compute_weights(std::string_view name, const Op& op,
                       const kernels::OperandsOf<Op, Tensor>& operands,
                       WeightsPosition position = WeightsPosition::in_place) {
    append_weights(named(name, kernels::recorded(op, operands)), position);
  }
  /// Where ops for weights go from here on: all to `later` if the batch asks for that, otherwise
  /// those whose position is the last to `last`; null: into the program.
  void postpone_weights_to(PostponedOps* later, PostponedOps* last) {
    postponed_ = batch_.weights_later ? later : nullptr;
    last_ = batch_.weights_later ? later : last;
  }
  /// Appends what was left for later.
  /// @throws Error if what it reads was written over meanwhile
  void append_postponed(PostponedOps& postponed);
  /// onto += x, of one floating dtype.
  void add(std::string_view name, Tensor x, Tensor onto);
  /// What is written becomes 0, or as many bytes of another tensor. @param cost none: a few numbers
  void clear(std::string_view name, Use what, Cost cost = {});
  void copy(std::string_view name, Use from, Use to, Cost cost = {});
  /// An exchange, under its full name.
  void append(execution::Op op) {
    program_.append(std::move(op));
    if (behind_exchanges_) behind_exchanges_();
  }
  /// What is done behind every exchange from here on.
  void behind_exchanges(std::function<void()> what) { behind_exchanges_ = std::move(what); }
  std::string full_name(std::string_view name) const;
  /// An op that the step does not run: it computes again what another op wrote, bit by bit, from
  /// what is kept for backward.
  template <kernels::Operator Op>
  void rerun_only(std::string_view name, const Op& op,
                  const kernels::OperandsOf<Op, Tensor>& operands) {
    append_rerun(named(name, kernels::recorded(op, operands)));
  }

 private:
  execution::Op named(std::string_view name, execution::Op op) const;
  void append_rerun(execution::Op op);
  void append_weights(execution::Op op, WeightsPosition position);

  Program& program_;
  Precision precision_;
  Batch batch_;
  Handles& handles_;
  std::string prefix_;
  PostponedOps* postponed_ = nullptr;
  PostponedOps* last_ = nullptr;
  std::function<void()> behind_exchanges_;
};

}  // namespace stowage::layers
