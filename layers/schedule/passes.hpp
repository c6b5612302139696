#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "execution/causal_pairs.hpp"
#include "layers/model/model.hpp"
#include "layers/recording/recorder.hpp"
#include "layers/state/step_values.hpp"

namespace stowage::layers {

/// Sizes of one kind of step on one rank.
struct StepShape {
  std::int64_t tokens = 0;    ///< n = B * T of a microbatch, shared by the ranks of a context group
  std::int64_t sequence = 0;  ///< T
  std::int64_t capacity = 1;  ///< C, documents of a microbatch
  int microbatches = 1;       ///< of a step
  int sources = 0;            ///< of sequences, whose losses are told apart; 0: they are not
  double capacity_factor = 0;  ///< see expert_capacity(); 0: room for all rows
  std::int64_t pairs = 0;      ///< see attention_pairs; 0: of n / T whole sequences

  /// (query, key) pairs of causal attention in a microbatch, of its documents at most: attention's
  /// cost is counted for them, and its room is planned for them. More are served, but more slowly;
  /// so is a long tail behind the documents, which counts as none.
  std::int64_t attention_pairs() const {
    return pairs > 0 ? pairs : execution::causal_pairs(tokens, sequence);
  }
};

/// What one stage of a pipeline gives another of one microbatch: the residual stream to the next
/// stage, or its gradient to the one before.
struct StageTransfer {
  bool sends = false;
  bool gradient = false;
  int peer = 0;   ///< rank in the pipeline group
  int chunk = 0;  ///< which of this rank's stages gives or is given
  int slot = 0;

  /// The stage that it goes to. @param here the one that gives or is given
  int destination(int here) const { return !sends ? here : gradient ? here - 1 : here + 1; }

  friend bool operator==(const StageTransfer&, const StageTransfer&) = default;
};

/// One pass of one microbatch through the layers of one of the rank's stages, or what the rank
/// exchanges with others.
struct Pass {
  enum class Kind : unsigned char { forward, backward, weights, evaluate, exchange };

  Kind kind = Kind::forward;
  int chunk = 0;            ///< which of the rank's stages
  int slot = 0;             ///< memory of its own: forward fills it, backward frees it
  bool accumulate = false;  ///< gradients are added: not the first microbatch of a step
  bool last = false;        ///< backward, weights: gradients are complete
  /// Backward leaves what it can of the weights' gradients to the pass `weights` of the slot.
  bool weights_later = false;
  bool overlapping = false;  ///< the pass goes on beside the one before it; see put_side_by_side
  std::vector<StageTransfer> transfers = {};  ///< of an exchange: they start together
};

/// Passes that are executed `repeat` times, as a section of the program.
struct PassSection {
  std::string name;
  int repeat = 1;
  std::vector<Pass> passes;
};

/// The passes of a rank in a step, as data: one recorder makes the program of any of them.
using RankPasses = std::vector<PassSection>;

/// Forward and backward of one microbatch after the other: the first, those between, the last. With
/// a leaf of several (PassRecorder::Options) these three of each leaf.
RankPasses train_one_by_one(int microbatches, int leaf = 1);
/// Backward of each microbatch beside forward of the next, all in one section.
RankPasses train_side_by_side(int microbatches);
/// Forward alone.
RankPasses evaluate_one_by_one(int microbatches);

/// The stacked inputs of a step: with M microbatches a leading extent M if M > 1.
struct StackedInputs {
  Tensor tokens;      ///< (n) int32; none where no stage reads them (Model::reads_tokens)
  Tensor targets;     ///< (n) int32, -1: counts in no loss; none but with the last stage
  Tensor cu_seqlens;  ///< (C + 1) int32
  Tensor sources;     ///< (n) int32, source of each counted target, else -1; none unless asked for
};

/// Name of the sums (2 sources) accum of losses and numbers of counted targets of each source of a
/// training step, if its program has them.
inline constexpr const char* kSourceLosses = "source_losses";

/// Adds the stacked inputs that a rank's stages read to a program.
StackedInputs add_inputs(Program& program, const StepShape& shape, const Model& model);

/// Appends the ops of passes to a program.
class PassRecorder {
 public:
  struct Options {
    StepShape shape;
    StackedInputs inputs;
    Tensor loss_scale;  ///< none when nothing goes backward
    /// (2) accum: gets the sum of losses and the number of counted targets, with the last stage.
    /// The program's kZLoss and kSourceLosses, if it has them, get theirs.
    Tensor loss;
    /// Has microbatches store their values apart, and leaves their gradients: these are added up by
    /// a tree. None: each microbatch adds its own to those before.
    StepValues* values = nullptr;
    bool own_gradients = false;  ///< each microbatch has gradients of its own, for `stored`
    int leaf = 1;                ///< microbatches that add up their gradients, for `stored`
  };

  /// As Model::Stored, with the leaf: where these store gradients apart.
  using Stored = std::function<void(Recorder& recorder, std::span<const Parameter>,
                                    const parallel::Leaf& leaf)>;

  /// @param handles of the whole recording; outlives this, as do program and model
  PassRecorder(Program& program, const Model& model, Handles& handles, Options options);

  /// @param finished called behind the ops that complete the gradients of some parameters
  /// @param exchanged called behind the exchanges of layers whose gradients are completed
  /// @param stored called behind the ops that make what a leaf adds to some gradients
  void record(const RankPasses& passes, const Model::Finished& finished = {},
              const std::function<void()>& exchanged = {}, const Stored& stored = {});

 private:
  /// What a microbatch brings to this stage and takes from it.
  struct Passing {
    Tensor in, out;    ///< (rows, D) storage, the residual stream
    Tensor dout, din;  ///< their gradients
  };

  struct Callbacks {
    const Model::Finished& finished;
    const std::function<void()>& exchanged;
    const Stored& stored;
  };

  void record(const PassSection& section, const Callbacks& callbacks);
  void record(const Pass& pass, int repeat, const Callbacks& callbacks);
  void backward(const Pass& pass, const parallel::Leaf& microbatch, const Callbacks& callbacks,
                Recorder& recorder);
  void exchange(const std::vector<StageTransfer>& transfers);
  /// The tensor that a transfer sends, or makes for what it receives.
  Tensor passed(const StageTransfer& transfer);
  const Stage& stage(int chunk) const { return model_.stages()[chunk]; }
  parallel::Leaf microbatch_of(const Pass& pass, int repeat);
  /// The leaf that is complete with a microbatch, if one is.
  std::optional<parallel::Leaf> leaf_of(const parallel::Leaf& microbatch) const;
  void forward(const Pass& pass, const parallel::Leaf& microbatch, Recorder& recorder);
  Batch sizes(const Pass& pass) const;
  Batch next_batch(const Pass& pass);
  Tensor take(Recorder& recorder, const char* name, Tensor stack, std::int64_t width) const;
  void add_further(Recorder& recorder, Batch& batch) const;
  Tensor own(Recorder& recorder, const char* name, Tensor all) const;
  void sum_losses(Recorder& recorder, Tensor losses) const;
  /// Where a microbatch adds to one of the sums.
  SomeRows into(Tensor sums) const;

  Program& program_;
  const Model& model_;
  Handles& handles_;
  Options options_;
  Tensor further_loss_scale_;   ///< (1) accum; none without heads of further tokens
  Tensor index_;                ///< (1) int32: the next microbatch; none if there is one
  std::map<int, Batch> slots_;  ///< microbatches under way
  std::map<std::pair<Pass::Kind, int>, std::int64_t> passed_;  ///< microbatches, by chunk, too
  std::map<std::pair<int, int>, Passing> passing_;             ///< by chunk and slot
};

}  // namespace stowage::layers
