#include "offload/host_room.hpp"

#include <algorithm>

namespace stowage::offload {

void HostRoom::add(const SavedTensor& item, std::size_t bytes) {
  change_[item.written] += static_cast<std::int64_t>(bytes);
  change_[static_cast<std::size_t>(item.first_backward) + 1] -= static_cast<std::int64_t>(bytes);
}

void HostRoom::remove(const SavedTensor& item, std::size_t bytes) {
  change_[item.written] -= static_cast<std::int64_t>(bytes);
  change_[static_cast<std::size_t>(item.first_backward) + 1] += static_cast<std::int64_t>(bytes);
}

std::int64_t HostRoom::most() const {
  std::int64_t away = 0, most = 0;
  for (const std::int64_t change : change_) most = std::max(most, away += change);
  return most;
}

}  // namespace stowage::offload
