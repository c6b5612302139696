#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "inputs/data/run_data.hpp"
#include "parallel/job/mpi.hpp"
#include "results/h5.hpp"
#include "results/part_file.hpp"
#include "run/step/loop.hpp"
#include "run/step/trainer.hpp"

namespace stowage::run {

/// All values of one training step in an HDF5 file, so that another program can check them:
/// inputs of all ranks, parameters, gradients and updated parameters. docs/reference/dump.md has
/// the layout.
class Dump {
 public:
  /// @param world outlives this  @param step counted from 1; 0: no dump  @param path where rank 0
  /// writes; tried here, so that a run does not end with what it cannot store
  Dump(const parallel::Communicator& world, std::int64_t step, std::string path);

  /// True if the step after `done` steps is the one.
  bool due(std::int64_t done) const { return step_ > 0 && done + 1 == step_; }
  /// Collective, as after(). Before that step is issued, with none under way.
  void before(Trainer& trainer, const inputs::Data& data);
  /// When it is done.
  void after(Trainer& trainer, const StepReport& report, double weight_decay);

  const std::string& path() const { return path_; }

 private:
  void write_tensors(Trainer& trainer, execution::Lifetime lifetime, const std::string& group);
  void write_inputs(Trainer& trainer, const inputs::Data& data);

  const parallel::Communicator& world_;
  std::int64_t step_;
  std::string path_;
  bool root_;
  std::optional<results::PartFile> part_;  ///< on rank 0 of a run that dumps
  std::unique_ptr<results::h5::File> file_;
};

}  // namespace stowage::run
