#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "execution/backend.hpp"
#include "execution/persistent.hpp"
#include "execution/plan.hpp"

namespace stowage::execution {

/// One rank's device: the arenas and queues that all programs of a run share. Everything is
/// allocated here, once.
class Device {
 public:
  /// @param transient_bytes largest transient region of any program of the run
  /// @param host_bytes largest host region
  /// @param slack_bytes more bytes behind the transient region, for tests that look for overruns
  /// @throws Error (exit 3) if the memory is not there
  Device(Backend& backend, PersistentLayout layout, std::size_t transient_bytes,
         std::size_t host_bytes, std::size_t slack_bytes = 0);

  Backend& backend() { return backend_; }
  const PersistentLayout& layout() const { return layout_; }
  /// The queue of this name, made at the first call.
  Queue& queue(const QueueInfo& info);
  std::byte* address(const Place& place) const { return base(place.region) + place.offset; }
  std::byte* base(Region region) const;
  std::size_t bytes(Region region) const { return bytes_[static_cast<int>(region)]; }
  /// The whole device arena: persistent, then transient, then slack.
  std::span<std::byte> device_arena() const { return {arena_->data(), arena_->bytes()}; }

  /// Copies a part of a persistent tensor's content, from byte `from` on, in or out; waits for all
  /// work first.
  void write(const std::string& tensor, std::span<const std::byte> content, std::size_t from = 0);
  void read(const std::string& tensor, std::span<std::byte> content, std::size_t from = 0);
  /// Blocks until all queues are idle; rethrows the first error of their work.
  void synchronize();
  /// Work of `who` comes next, on `queue`. If the work before was another's, `queue` first waits
  /// for all of it: a plan may leave copies under way that only its own next execution waits for.
  void take_turn(const void* who, Queue& queue);

 private:
  Backend& backend_;
  PersistentLayout layout_;
  std::size_t bytes_[kRegions];
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Arena> host_arena_;
  std::unique_ptr<Arena> bounce_;  ///< pinned, for write() and read()
  std::map<std::string, std::unique_ptr<Queue>> queues_;
  std::unique_ptr<Event> settled_;
  const void* turn_ = nullptr;  ///< whose work came last
};

}  // namespace stowage::execution
