#include "parallel/job/agreement.hpp"

#include <fmt/core.h>

#include <utility>
#include <vector>

namespace stowage::parallel {

namespace {

/// The first line in which two texts that differ do: theirs and ours.
std::pair<std::string_view, std::string_view> first_difference(std::string_view a,
                                                               std::string_view b) {
  for (;;) {
    const std::string_view left = a.substr(0, a.find('\n')), right = b.substr(0, b.find('\n'));
    if (left != right || left.size() == a.size() || right.size() == b.size()) return {left, right};
    a.remove_prefix(left.size() + 1);
    b.remove_prefix(right.size() + 1);
  }
}

}  // namespace

void require_equal(const Communicator& world, std::string_view what, const std::string& text) {
  const std::vector<std::string> texts = world.gather(text);
  std::string problem;
  for (std::size_t rank = 1; rank < texts.size() && problem.empty(); ++rank)
    if (texts[rank] != texts[0]) {
      const auto [first, other] = first_difference(texts[0], texts[rank]);
      problem = fmt::format("the ranks have different {}: rank 0 has {}, rank {} has {}", what,
                            first, rank, other);
    }
  problem = world.broadcast(problem);
  if (!problem.empty()) execution::throw_usage("{}", problem);
}

}  // namespace stowage::parallel
