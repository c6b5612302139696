// The proof of a run's plans, and what it costs (printed, not judged): 100 000 ops, with copies and
// a graph for each layer.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "execution/verifier.hpp"
#include "offload/planner.hpp"
#include "toy_program.hpp"

namespace stowage::ctest {
namespace {

constexpr int kLayers = 2000;  ///< of one program: one op forward and one backward each
constexpr std::size_t kOps = 100'000;
TEST(verifier_cost, a_hundred_thousand_ops_are_proved) {
  const Toy toy(1, kLayers);
  offload::PlannerOptions options;
  options.graphs.mode = offload::GraphOptions::Mode::scopes;
  options.graphs.scopes = {"layer"};
  options.policy.kind = offload::Policy::Kind::manual;
  options.policy.offload = {{"mlp_act", {"mlp_act"}}};
  options.policy.min_tensor_bytes = 0;
  options.policy.keep_exposed = false;
  const Plan plan = offload::make_plan(toy.program, toy.layout, options);
  // A run proves all its programs together, since they share their memory: here as many as have
  // that many ops.
  const std::size_t programs = (kOps + toy.program.ops().size() - 1) / toy.program.ops().size();
  const std::vector<PlannedProgram> planned(programs, {&toy.program, &plan});
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::string> faults = verify(planned);
  const double time_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(faults, std::vector<std::string>{});
  EXPECT_EQ(plan.segments.size(), 2 * std::size_t{kLayers});
  fmt::print("{} programs of {} ops, {} steps, {} graphs each: proved in {:.2f} s\n", programs,
             toy.program.ops().size(), plan.steps.size(), plan.segments.size(), time_s);
}

}  // namespace
}  // namespace stowage::ctest
