#include "execution/copy_watch.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace stowage::execution {

void CopyWatch::left(Clocks::Node node, const std::string& module, std::size_t bytes) {
  out_.push_back({node, &module, bytes});
}

std::string CopyWatch::came_back(const Clocks& clocks, const CopyCaps& caps, Clocks::Node node,
                                 std::size_t bytes) {
  if (caps.h2d_bytes < 0) return {};
  std::erase_if(in_, [&](const Copy& copy) {
    return copy.joined.position > 0 && clocks.before(copy.joined, node);
  });
  std::size_t under_way = bytes;
  for (const Copy& copy : in_) under_way += copy.bytes;
  const bool alone = in_.empty();
  in_.push_back({node, nullptr, bytes});
  if (alone || under_way <= static_cast<std::size_t>(caps.h2d_bytes)) return {};
  return fmt::format("{} bytes are under way from the host, the cap is {}", under_way,
                     caps.h2d_bytes);
}

std::string CopyWatch::computed(const Clocks& clocks, const CopyCaps& caps, Clocks::Node node,
                                bool starts) {
  for (Copy& copy : in_)
    if (copy.joined.position == 0 && clocks.before(copy.node, node)) copy.joined = node;
  std::erase_if(out_, [&](const Copy& copy) { return clocks.before(copy.node, node); });
  if (!starts) return {};
  std::size_t bytes = 0;
  for (const Copy& copy : out_) {
    bytes += copy.bytes;
    const auto same = std::count_if(
        out_.begin(), out_.end(), [&](const Copy& other) { return *other.module == *copy.module; });
    if (caps.max_inflight >= 0 && !copy.module->empty() && same > caps.max_inflight)
      return fmt::format("{} copies of {} are under way to the host, the cap is {}", same,
                         *copy.module, caps.max_inflight);
  }
  if (caps.d2h_bytes >= 0 && bytes > static_cast<std::size_t>(caps.d2h_bytes))
    return fmt::format("{} bytes are under way to the host, the cap is {}", bytes, caps.d2h_bytes);
  return {};
}

}  // namespace stowage::execution
