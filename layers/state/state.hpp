#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "execution/device.hpp"
#include "execution/persistent.hpp"
#include "layers/recording/parameters.hpp"
#include "layers/state/optimizer.hpp"
#include "layers/state/sharing.hpp"
#include "layers/state/state_type.hpp"

namespace stowage::layers {

/// Which classes of states have their home in pinned host memory, and come to the device for each
/// op that uses them.
struct StatesOnHost {
  /// kMaster, kEma, kGradient, kParameter or names of the optimizer's row.
  std::vector<std::string> names = {};
  /// Of the bytes of these: whole buckets, in backward order, never above.
  double fraction = 1;
  /// As little of that fraction leaves as a budget needs, and more classes if that is not enough
  /// (forecast/plan/choose_states.hpp).
  bool automatic = false;
  std::string last = {};     ///< one more class, with a fraction of its own
  double last_fraction = 1;  ///< of its bytes

  /// The fraction of a class that leaves.
  double of(std::string_view name) const {
    if (name == last) return last_fraction;
    return std::ranges::find(names, name) != names.end() ? fraction : 0;
  }
};

/// Names of the classes of gradients and parameters.
inline constexpr std::string_view kGradient = "gradient";
inline constexpr std::string_view kParameter = "parameter";
/// Name of the masters among the states: "master" stands for "master/embedding.weight" and so on.
inline constexpr std::string_view kMaster = "master";
/// Likewise of the exponential moving averages of weights, of the type of sums.
inline constexpr std::string_view kEma = "ema";
/// Whether a tensor is one of these.
inline bool is_average(std::string_view tensor) {
  return tensor.starts_with(kEma) && tensor.substr(kEma.size()).starts_with('/');
}

/// What lays out the persistent region: the model's parameters and states, and the process grid.
struct StateOptions {
  /// Elements after which a bucket is closed: gradients are reduced bucket by bucket, so a smaller
  /// one starts earlier and a larger one uses a link better.
  std::int64_t bucket_elements = std::int64_t{4} << 20;
  bool running_norm = false;  ///< kRunningNorm is kept, by which spikes are told
  bool ema = false;           ///< kEma of each parameter is kept
  const Optimizer* optimizer = &kAdamw;
  StateType type = {};
  StatesOnHost host = {};
  bool weights_only = false;  ///< parameters and the states of layers: what forward reads
};

/// Name of the count of steps that changed the parameters, (1) int64.
inline constexpr const char* kGoodSteps = "optimizer/good_steps";
/// Name of the running norm of good steps and of the spikes skipped since, (2) fp64
/// (kernels/optimizer/guard.hpp).
inline constexpr const char* kRunningNorm = "optimizer/running_norm";
/// Whether a tensor is one of these, which are the same on all stages of a pipeline.
inline bool is_of_all_stages(const std::string& name) {
  return name == kGoodSteps || name == kRunningNorm;
}

/// Lays out parameters, gradients, fp32 masters (if any), the optimizer's states, averages of
/// weights (if any), the states of layers and the step count. Buckets follow the order of
/// `parameters` (backward order), those of one reduction group apart from those of another.
/// Masters, the optimizer's states and averages are this rank's shards where ranks share them out.
/// With `weights_only` what a step alone needs is left out.
execution::PersistentLayout lay_out_state(const std::vector<Parameter>& parameters,
                                          const std::vector<execution::TensorInfo>& states,
                                          Precision precision, const StateOptions& options,
                                          const Sharing& sharing = {});

/// Writes what a run starts from, whatever was there: parameters, and what is held of masters and
/// of averages if there are any, the same for any layout, rank count and backend; zero for all
/// else.
void set_initial_state(execution::Device& device, const std::vector<Parameter>& parameters,
                       Precision precision, std::uint64_t seed, double std, int layers);

}  // namespace stowage::layers
