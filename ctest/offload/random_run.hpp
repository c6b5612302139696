#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "execution/executor.hpp"
#include "offload/planner.hpp"
#include "random_program.hpp"

namespace stowage::ctest {

/// What a run of a random program left behind.
struct RandomOutcome {
  std::unique_ptr<RandomProgram> random;
  Plan plan;
  std::vector<std::byte> state;  ///< the outputs of all steps but two, then all persistent bytes
  ExecutorCounters counters;
  std::vector<std::size_t> nodes;  ///< of each graph
};

/// The backend of these tests: the host's, or CUDA's in a program built with STOWAGE_TEST_CUDA.
std::unique_ptr<Backend> make_test_backend(const HostOptions& host);
/// False if the backend cannot be had: the test is to be skipped.
bool has_test_backend();

/// Plans a random program, proves the plan, and runs it for some steps on inputs that differ.
/// Expects that nothing is allocated after set-up.
RandomOutcome run_random(const RandomShape& shape, const offload::PlannerOptions& options,
                         int steps = 3, const HostOptions& host = {},
                         const ExecutorOptions& how = {});

}  // namespace stowage::ctest
