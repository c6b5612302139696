#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "layers/model.hpp"
#include "layers/recorder.hpp"

namespace stowage::layers {

/// Sizes of one kind of step on one rank.
struct StepShape {
  std::int64_t tokens = 0;    ///< n = B * T of a microbatch, shared by the ranks of a context group
  std::int64_t sequence = 0;  ///< T; attention's cost is counted for whole sequences
  std::int64_t capacity = 1;  ///< C, documents of a microbatch
  int microbatches = 1;       ///< of a step

  /// (query, key) pairs of causal attention in n / T whole sequences.
  std::int64_t attention_pairs() const { return tokens * (sequence + 1) / 2; }
};

/// One pass of one microbatch through the model.
struct Turn {
  enum class Pass : unsigned char { forward, backward, evaluate };

  Pass pass = Pass::forward;
  int slot = 0;             ///< memory of its own: forward fills it, backward frees it
  bool accumulate = false;  ///< gradients are added: not the first microbatch of a step
  bool last = false;        ///< backward: gradients are complete
};

/// Turns that are executed `repeat` times, as a section of the program.
struct TurnSection {
  std::string name;
  int repeat = 1;
  std::vector<Turn> turns;
};

/// What a rank does in a step, as data: one recorder makes the program of any of them.
using Turns = std::vector<TurnSection>;

/// Forward and backward of one microbatch after the other: the first, those between, the last.
Turns train_in_turn(int microbatches);
/// Forward alone.
Turns evaluate_in_turn(int microbatches);
/// What a stage computes while its pipeline is full: `in_flight` microbatches go forward, then each
/// goes backward, in the same order (1F1B, arXiv 2104.04473, where stage p of P has P - p in
/// flight). All of it lies in one section, so each microbatch has memory of its own.
Turns full_pipeline(int in_flight);

/// The stacked inputs of a step: with M microbatches a leading extent M if M > 1.
struct StackedInputs {
  Tensor tokens;      ///< (n) int32
  Tensor targets;     ///< (n) int32, -1: counts in no loss
  Tensor cu_seqlens;  ///< (C + 1) int32
};

/// Adds the stacked inputs to a program.
StackedInputs add_inputs(Program& program, const StepShape& shape);

/// Appends the ops of turns to a program.
class TurnRecorder {
 public:
  struct Options {
    StepShape shape;
    StackedInputs inputs;
    Tensor loss_scale;  ///< none when nothing goes backward
    Tensor loss;        ///< (2) accum: gets the sum of losses and the number of counted targets
  };

  /// @param handles of the whole recording; outlives this, as do program and model
  TurnRecorder(Program& program, const Model& model, Handles& handles, Options options);

  /// @param finished called behind the ops that complete the gradients of some parameters
  void record(const Turns& turns, const Model::Finished& finished = {});

 private:
  void record(const Turn& turn, const Model::Finished& finished);
  Batch next_batch(const Turn& turn);
  Tensor take(Recorder& recorder, const char* name, Tensor stack, std::int64_t width) const;
  Tensor own(Recorder& recorder, const char* name, Tensor all) const;
  void sum_losses(Recorder& recorder, Tensor losses) const;

  Program& program_;
  const Model& model_;
  Handles& handles_;
  Options options_;
  Tensor index_;                ///< (1) int32: the next microbatch; none if there is one
  std::map<int, Batch> slots_;  ///< microbatches under way
};

}  // namespace stowage::layers
