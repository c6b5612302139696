#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "execution/queue.hpp"
#include "execution/timing.hpp"

namespace stowage::execution {

/// The two memories of a rank. On the host backend both are host memory, kept apart so that the
/// same plans (and the same mistakes) exist there.
enum class MemoryKind : unsigned char { device, host };

/// A block of memory that is allocated once, before step 1, and never grows.
class Arena {
 public:
  virtual ~Arena() = default;
  virtual std::byte* data() const = 0;
  virtual std::size_t bytes() const = 0;
};

/// An executable graph: what was enqueued between begin_capture and end_capture, launched as one.
/// A launch never overlaps the previous launch of the same graph.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void launch(Queue& queue) = 0;
  virtual std::size_t nodes() const = 0;
};

/// What a machine offers to the executor: memory, queues, events and graphs with CUDA's semantics.
class Backend {
 public:
  virtual ~Backend() = default;

  /// "host" or "cuda".
  virtual std::string_view name() const = 0;

  /// Allocates `bytes` of zeroed memory, aligned to 4 KiB.
  /// @throws Error (exit 3) that names the bytes asked for and those available.
  virtual std::unique_ptr<Arena> allocate(MemoryKind kind, std::size_t bytes) = 0;
  virtual std::unique_ptr<Queue> make_queue(Lane lane, std::string name) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  /// An event that also tells when it happened; it costs a little more.
  virtual std::unique_ptr<TimedEvent> make_timed_event() = 0;

  /// Starts to record what is enqueued on `queue`, and on queues that join it by waiting for an
  /// event recorded in it, instead of running it.
  virtual void begin_capture(Queue& queue) = 0;
  /// Ends the recording begun on `queue`.
  /// @throws Error if a forked queue was not joined, or if a captured queue waited for an event
  ///         recorded outside without EventUse::external.
  virtual std::unique_ptr<Graph> end_capture(Queue& queue) = 0;

  /// Allocations made since the backend exists; constant after set-up (a test checks it).
  virtual std::uint64_t allocations() const = 0;
  /// How often the host has waited for a queue or an event; constant while a step is issued.
  virtual std::uint64_t waits() const = 0;
};

/// Options of the host backend.
struct HostOptions {
  std::uint64_t delay_seed = 0;  ///< non-zero: every operation is delayed by a seeded random time
  double max_delay_s = 200e-6;   ///< the longest such delay
};

/// The backend that runs on CPUs: one compute thread with Kokkos, one thread per other queue.
std::unique_ptr<Backend> make_host_backend(const HostOptions& options = {});

}  // namespace stowage::execution
