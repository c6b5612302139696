#pragma once

#include <cstddef>
#include <cstdint>

#include "execution/function.hpp"

namespace stowage::execution {

/// Which engine an operation needs; the plan picks the queue.
enum class Lane : unsigned char { compute, comm, d2h, h2d };

/// A point in a queue that other queues can wait for. Made by a Backend; has no state until
/// recorded.
class Event {
 public:
  virtual ~Event() = default;
  /// Blocks the host until the latest record has happened; returns at once without one.
  virtual void synchronize() = 0;
  /// True if the latest record has happened, or if there is none.
  virtual bool done() = 0;
};

/// How an event is used while a queue is captured (CUDA's external event nodes).
enum class EventUse : unsigned char { internal, external };

/// What a copy moves of the rows of a tensor: as many as a number says when the copy runs.
struct CountedRows {
  const std::int32_t* count = nullptr;  ///< in device memory; what is negative or too large: all
  std::size_t row_bytes = 0;
  std::size_t most = 0;  ///< bytes of all rows
  bool to_host = false;
  std::uint64_t* moved = nullptr;  ///< in host memory of the backend: the bytes are added to it
};

/// In-order work of one engine: a thread on the host backend, a CUDA stream on the cuda backend.
///
/// Semantics are CUDA's: a wait means the latest record of the event that was enqueued before the
/// wait in host order (none: no wait); calls never block the host but synchronize().
class Queue {
 public:
  virtual ~Queue() = default;

  /// Of the run or rerun in a plan whose launcher is being called: no other of this process has the
  /// number, and its operands lie where they lay. For ops that keep what they know of addresses.
  int issue = 0;

  /// The cudaStream_t, or nullptr on the host backend: how a launcher knows its backend.
  virtual void* stream() const = 0;
  /// Runs a closure in order. Host backend only.
  virtual void enqueue(Function<void()> work) = 0;
  /// Copies bytes in order, between any two memories of the backend.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  /// Copies the leading rows of a tensor in order, between device and host memory.
  virtual void copy_rows(void* to, const void* from, const CountedRows& rows) = 0;
  virtual void record(Event& event, EventUse use = EventUse::internal) = 0;
  virtual void wait(Event& event, EventUse use = EventUse::internal) = 0;
  /// Blocks the host until all enqueued work is done; rethrows the first error of that work.
  virtual void synchronize() = 0;
};

}  // namespace stowage::execution
