#include "execution/device.hpp"

#include <algorithm>
#include <cstring>

#include "execution/error.hpp"

namespace stowage::execution {
namespace {

constexpr std::size_t kBounceBytes = std::size_t{8} << 20;

}  // namespace

Device::Device(Backend& backend, PersistentLayout layout, std::size_t transient_bytes,
               std::size_t host_bytes, std::size_t slack_bytes)
    : backend_(backend),
      layout_(std::move(layout)),
      bytes_{align_up(layout_.bytes(), 4096), transient_bytes, host_bytes},
      arena_(backend.allocate(MemoryKind::device,
                              bytes_[0] + align_up(transient_bytes, 4096) + slack_bytes)),
      host_arena_(backend.allocate(MemoryKind::host, host_bytes)),
      bounce_(backend.allocate(MemoryKind::host, kBounceBytes)) {}

Queue& Device::queue(const QueueInfo& info) {
  std::unique_ptr<Queue>& queue = queues_[info.name];
  if (!queue) queue = backend_.make_queue(info.lane, info.name);
  return *queue;
}

std::byte* Device::base(Region region) const {
  switch (region) {
    case Region::persistent:
      return arena_->data();
    case Region::transient:
      return arena_->data() + bytes_[0];
    case Region::host:
      return host_arena_->data();
  }
  return nullptr;
}

void Device::write(const std::string& tensor, std::span<const std::byte> content,
                   std::size_t from) {
  const Place& place = layout_.place(tensor);
  STOWAGE_ASSERT(from + content.size() <= place.bytes, "{} has {} bytes, {} were given from {} on",
                 tensor, place.bytes, content.size(), from);
  synchronize();
  if (place.region == Region::host) {
    std::memcpy(address(place) + from, content.data(), content.size());
    return;
  }
  Queue& copies = queue({"h2d", Lane::h2d});
  for (std::size_t at = 0; at < content.size(); at += kBounceBytes) {
    const std::size_t bytes = std::min(kBounceBytes, content.size() - at);
    std::memcpy(bounce_->data(), content.data() + at, bytes);
    copies.copy(address(place) + from + at, bounce_->data(), bytes);
    copies.synchronize();
  }
}

void Device::read(const std::string& tensor, std::span<std::byte> content, std::size_t from) {
  const Place& place = layout_.place(tensor);
  STOWAGE_ASSERT(from + content.size() <= place.bytes, "{} has {} bytes, {} are asked from {} on",
                 tensor, place.bytes, content.size(), from);
  synchronize();
  if (place.region == Region::host) {
    std::memcpy(content.data(), address(place) + from, content.size());
    return;
  }
  Queue& copies = queue({"d2h", Lane::d2h});
  for (std::size_t at = 0; at < content.size(); at += kBounceBytes) {
    const std::size_t bytes = std::min(kBounceBytes, content.size() - at);
    copies.copy(bounce_->data(), address(place) + from + at, bytes);
    copies.synchronize();
    std::memcpy(content.data() + at, bounce_->data(), bytes);
  }
}

void Device::take_turn(const void* who, Queue& queue) {
  if (turn_ == who) return;
  turn_ = who;
  if (!settled_) settled_ = backend_.make_event();
  for (auto& [name, other] : queues_) {
    if (other.get() == &queue) continue;
    other->record(*settled_);
    queue.wait(*settled_);
  }
}

void Device::synchronize() {
  for (auto& [name, queue] : queues_) queue->synchronize();
}

}  // namespace stowage::execution
