// Rows of [run].
#include "inputs/deck/registry.hpp"

namespace stowage::inputs::detail {

using std::string;

std::vector<Parameter> run_parameters() {
  return {
      {.key = "run.name", .fallback = string("run"), .help = "Name of the run in its results."},
      {.key = "run.seed",
       .fallback = 1234,
       .range = at_least(0),
       .numerics = true,
       .help = "Seed of initial weights, sample order and synthetic tokens."},
      {.key = "run.steps",
       .fallback = 100,
       .unit = "steps",
       .range = between(0, kMostSteps),
       .help =
           "Optimizer steps. The learning-rate schedule ends here unless optim.decay_steps says "
           "otherwise."},
      {.key = "run.output",
       .fallback = string(),
       .help = "Path of the result set (HDF5). Empty: <run.name>.h5 in the working directory."},
      {.key = "run.mllog",
       .fallback = string(),
       .help =
           "Where the lines of MLPerf Training's log (:::MLLOG) are written: an older log is kept "
           "beside it, a run that goes on adds to its own. Empty: nowhere."},
      {.key = "run.log_interval",
       .fallback = 10,
       .unit = "steps",
       .range = between(1, kMostSteps),
       .help = "A progress line every so many steps."},
  };
}

}  // namespace stowage::inputs::detail
