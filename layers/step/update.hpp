#pragma once

#include <functional>
#include <string>
#include <vector>

#include "layers/step/step.hpp"

namespace stowage::layers {

class UpdateNorms;

/// What an optimizer's op is made of.
struct ParameterUpdate {
  /// The elements of a parameter that this rank updates, and their states.
  struct One {
    std::string name;  ///< of the parameter
    SomeRows parameter, gradient;
    SomeRows master;                    ///< none unless there are any
    std::vector<SomeRows> states = {};  ///< in the order of Optimizer::states
    std::int64_t elements = 0;
    execution::GlobalIndex index = {};  ///< which elements of the whole parameter they are
    double decay = 0, lr = 1;           ///< factors of the schedule's

    /// Elements [begin, end) of these.
    One some(std::int64_t begin, std::int64_t end) const;
  };

  std::string name;  ///< of the op
  Recorder& recorder;
  const OptimizerConfig& config;
  Tensor schedule, good_steps, grad_norm, step_ok;
  bool has_master;
  const Model& model;
  const execution::PersistentLayout& layout;
  const Sharing& sharing;
  std::vector<One> parameters = {};
  /// Of a rule of whole matrices: appends the ops of the other rule, once.
  std::function<void()> other_rule = {};
  UpdateNorms* norms = nullptr;  ///< if they are told

  /// Whether some of it has its home on the host.
  bool on_host(const One& one) const;
  /// The same by ops that each take some elements: at most config.window_elements where they come
  /// from the host, named by their number; and one of all others.
  /// @param most elements of one of those others, which are cut like these; 0: any
  std::vector<ParameterUpdate> windows(std::int64_t most = 0) const;
  /// Windows of ops that write weights, each of which `record` appends: what they change is told
  /// if it is to be.
  void write_weights(const std::function<void(const ParameterUpdate& window)>& record) const;
};

/// The end of a training step: what ranks add up, the norm of all gradients, clipping and the
/// optimizer.
class Update {
 public:
  /// @param recorder of the step, outside of microbatches  @param values of the step that ranks add
  /// up, all of the accumulation type
  Update(Recorder& recorder, const Model& model, const Optimizer& rule,
         const OptimizerConfig& optimizer, const execution::PersistentLayout& layout,
         const Sharing& sharing, std::vector<Tensor> values);

  /// Sums of squares of the gradients that this rank answers for, block by block: every block of
  /// the model is one rank's, if ranks share them out.
  void record_squares();
  /// Adds up over ranks, by one op: the values, and the squares if gradients are shared out.
  /// step_ok becomes the least of all ranks'.
  void record_sums(Tensor step_ok);
  /// The global norm of all gradients; one that is not finite clears step_ok.
  void record_norm(Tensor grad_norm, Tensor step_ok);
  /// kGradientNorms, behind record_sums().
  void record_norms_of_parts();
  /// Between two steps: kWeightNorms, of the weights that this rank answers for and, by a sum over
  /// ranks, of all others.
  void record_weight_norms();
  /// Clears step_ok of spikes, and of steps that were issued before the host knew of a bad one.
  void record_guard(const kernels::SpikeRule& rule, const TrainingProgram& step);
  /// Clipping and the optimizer on what this rank holds, and the count of good steps. Nothing is
  /// written where step_ok is 0.
  void record_update(const TrainingProgram& step);

 private:
  /// A parameter, the elements of it whose states are held, those of them whose squares this rank
  /// adds up, and its first block among the sums.
  struct Piece {
    Parameter parameter;
    execution::Range held;
    execution::Range squared;
    execution::Range left_out;  ///< of those; another rank of the tensor group adds up their copies
    std::int64_t first_block = 0;
  };

  execution::Range squared(const Model& model, const Parameter& parameter,
                           execution::Range held) const;
  Tensor state(const std::string& name) const;
  /// Sums of squares, by windows where they come from the host as an optimizer's op has them.
  ///
  /// @param of what of a piece: its gradient, or its weights
  void record_squares(const std::function<SomeRows(const Piece&)>& of);
  /// Of the sums of squares, by part.
  void record_norms_of_parts(const char* output);
  /// What is held of a piece, with its states.
  ParameterUpdate::One all_of(const Piece& piece) const;

  Recorder& recorder_;
  const Model& model_;
  const Optimizer& rule_;
  const OptimizerConfig& optimizer_;
  const execution::PersistentLayout& layout_;
  const Sharing& sharing_;
  std::vector<Tensor> values_;
  bool has_master_ = false;
  bool shares_squares_;  ///< no rank has all gradients
  /// Of all trained parameters of which something is held, in backward order.
  std::vector<Piece> pieces_;
  /// Blocks of the embedding, of each layer and of the head.
  std::vector<execution::Range> part_blocks_;
  std::int64_t blocks_ = 0;        ///< of all trained parameters
  std::int64_t values_count_ = 0;  ///< of the values and flags, if there are several ranks
  Tensor sums_;                    ///< fp64: a sum of squares for each block, then values and flags
};

}  // namespace stowage::layers
