#include "parallel/agreement.hpp"

#include <fmt/core.h>

#include <vector>

namespace stowage::parallel {

void require_equal(const Communicator& world, std::string_view what, const std::string& text) {
  const std::vector<std::string> texts = world.gather(text);
  std::string problem;
  for (std::size_t rank = 1; rank < texts.size() && problem.empty(); ++rank)
    if (texts[rank] != texts[0])
      problem = fmt::format("the ranks have different {}: rank 0 has {}, rank {} has {}", what,
                            texts[0], rank, texts[rank]);
  problem = world.broadcast(problem);
  if (!problem.empty()) execution::throw_usage("{}", problem);
}

}  // namespace stowage::parallel
