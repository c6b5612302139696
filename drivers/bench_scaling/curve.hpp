#pragma once

#include "drivers/bench_scaling/point.hpp"
#include "execution/error.hpp"
#include "forecast/measured/measured_rates.hpp"
#include "inputs/deck/command_line.hpp"
#include "parallel/job/mpi.hpp"

namespace stowage::drivers {

/// What the command line asks for.
struct CurveCommand {
  inputs::CommandLine command;
  ScalingOptions options;
  forecast::MeasuredRates rates;  ///< what the predictions read
  bool resume = false;            ///< points that run.output holds are taken from it
};

/// Collective over the ranks of the job. Measures one point after the other on the first ranks of
/// the job, while the others wait; writes the result set. A signal or the time limit ends it after
/// the step under way: what was measured is kept, and the exit code is 75.
execution::Exit measure_curve(const parallel::Communicator& world, const CurveCommand& curve,
                              int argc, const char* const* argv);

}  // namespace stowage::drivers
