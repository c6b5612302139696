#include "offload/host_room.hpp"

#include <algorithm>

namespace stowage::offload {

bool HostRoom::take(const Cargo& item, std::size_t bytes) {
  if (budget_ < 0) return true;
  const auto first = taken_.begin() + item.written;
  const auto last = taken_.begin() + item.first_backward + 1;
  if (*std::max_element(first, last) + bytes > static_cast<std::size_t>(budget_)) return false;
  std::for_each(first, last, [&](std::size_t& taken) { taken += bytes; });
  return true;
}

}  // namespace stowage::offload
