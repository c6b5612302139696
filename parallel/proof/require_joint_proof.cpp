#include "parallel/proof/require_joint_proof.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "parallel/proof/trace_bytes.hpp"

namespace stowage::parallel {

void require_joint_proof(const Communicator& world,
                         std::span<const execution::PlannedProgram> programs, RankOrder order) {
  const std::vector<std::string> bytes =
      world.gather(to_bytes(trace_communication(world.rank(), programs)));
  std::string verdict;
  if (world.rank() == 0)
    verdict = fmt::format("{}", fmt::join(prove_jointly(from_bytes(bytes), order), "\n  "));
  verdict = world.broadcast(verdict);
  if (!verdict.empty())
    throw execution::Error(execution::Exit::runtime,
                           "the plans of the ranks do not fit together:\n  " + verdict);
}

}  // namespace stowage::parallel
