#include "parallel/proof/joint_groups.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

namespace stowage::parallel {
namespace {

/// What is wrong with a group by itself, as a rank gives it; empty: nothing.
std::string wrong_alone(const TracedGroup& group, int rank, int ranks) {
  std::vector<int> sorted = group.members;
  std::sort(sorted.begin(), sorted.end());
  if (!std::binary_search(sorted.begin(), sorted.end(), rank)) return "is not one of them";
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return "names one twice";
  if (sorted.front() < 0 || sorted.back() >= ranks)
    return fmt::format("the job has ranks 0 to {}", ranks - 1);
  return {};
}

}  // namespace

std::string describe_ranks(std::span<const int> ranks) {
  constexpr std::size_t kShown = 8;
  std::string text = fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks",
                                 fmt::join(ranks.first(std::min(ranks.size(), kShown)), ", "));
  if (ranks.size() > kShown) text += fmt::format(" and {} more", ranks.size() - kShown);
  return text;
}

JointGroups::JointGroups(std::span<const RankTrace> traces, std::vector<std::string>& faults) {
  std::map<std::pair<std::string, std::vector<int>>, int> known;
  for (const RankTrace& trace : traces) {
    auto& ids = ids_.emplace_back();
    for (const TracedGroup& group : trace.groups) {
      const auto [found, added] = known.emplace(std::pair(group.name, group.members), size());
      if (added) groups_.push_back(group);
      ids.push_back(found->second);
      const std::string wrong = wrong_alone(group, trace.rank, static_cast<int>(traces.size()));
      if (!wrong.empty())
        faults.push_back(fmt::format("rank {} says that group {} is {}: {}", trace.rank, group.name,
                                     describe_ranks(group.members), wrong));
    }
  }
  if (!faults.empty()) return;
  for (const RankTrace& trace : traces)
    for (const TracedGroup& group : trace.groups)
      for (const int member : group.members)
        for (const TracedGroup& other : traces[member].groups)
          if (other.name == group.name && other.members != group.members)
            faults.push_back(fmt::format("rank {} says that group {} is {}; rank {}, that it is {}",
                                         trace.rank, group.name, describe_ranks(group.members),
                                         member, describe_ranks(other.members)));
}

std::size_t JointGroups::position(int id, int rank) const {
  const std::vector<int>& members = group(id).members;
  return static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) -
                                  members.begin());
}

}  // namespace stowage::parallel
