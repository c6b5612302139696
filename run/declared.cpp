// The structs that decks fill. Rows of one section stand on its page in this order.
#include "forecast/plan/parallel_section.hpp"
#include "forecast/plan/run_section.hpp"
#include "forecast/rates/machine_section.hpp"
#include "inputs/data/data_section.hpp"
#include "inputs/data/run_section.hpp"
#include "inputs/deck/section.hpp"
#include "layers/recording/config_section.hpp"
#include "layers/step/step_section.hpp"
#include "offload/offload_section.hpp"

namespace stowage::inputs {

std::vector<Declared> declared() {
  return {
      declare<RunConfig>(),
      declare<layers::ModelConfig>(),
      declare<TrainConfig>(),
      declare<layers::LearningRate>(),
      declare<layers::OptimizerChoice>(),
      declare<layers::OptimizerConfig>(),
      declare<layers::StateType>(),
      declare<kernels::SpikeRule>(),
      declare<EvalConfig>(),
      declare<forecast::CheckpointConfig>(),
      declare<forecast::ParallelConfig>(),
      declare<offload::OffloadConfig>(),
      declare<offload::GraphConfig>(),
      declare<DataConfig>(),
      declare<forecast::ExecutionConfig>(),
      declare<forecast::MachineConfig>(),
      declare<forecast::ValidateConfig>(),
  };
}

}  // namespace stowage::inputs
