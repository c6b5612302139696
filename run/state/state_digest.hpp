#pragma once

#include <memory>
#include <string>
#include <vector>

#include "execution/device.hpp"
#include "forecast/plan/trainer_plan.hpp"
#include "kernels/digest/digest.hpp"
#include "parallel/job/mpi.hpp"

namespace stowage::run {

/// The digest (kernels/digest) of all that a training run keeps from step to step: parameters,
/// masters, moments, states of layers, the count of steps. Runs whose digests agree go on alike to
/// the bit.
///
/// It is that of whole tensors, each element counted once: it does not depend on how ranks cut and
/// share them, and padding and gradients are no part of it. What several ranks hold is compared.
class StateDigest {
 public:
  /// @param device, plan, world outlive this
  StateDigest(execution::Device& device, const forecast::TrainerPlan& plan,
              const parallel::Communicator& world);

  struct Value {
    std::string text;                    ///< 32 hexadecimal digits
    std::vector<std::string> differing;  ///< "<tensor> on ranks 0 and 3": should be equal bits
  };

  /// Collective. Waits for the device and reads the state once where it lies. @return the same on
  /// every rank
  Value make();

 private:
  /// What this rank holds of a tensor and answers for.
  struct Held {
    execution::TensorInfo info;
    kernels::DigestPart part;
    void* data;
  };
  void hold(const execution::Bucket& bucket, const std::string& name,
            const layers::ShardRange& shard, execution::Range range);
  std::string sums_text();

  execution::Device& device_;
  const parallel::Communicator& world_;
  std::vector<Held> held_;
  std::unique_ptr<execution::Arena> sums_;     ///< (tensors, 2) uint64
  std::unique_ptr<execution::Arena> on_host_;  ///< their copy
};

}  // namespace stowage::run
