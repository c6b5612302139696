#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "execution/queue.hpp"

namespace stowage::parallel {

/// Bytes that go to a peer, or come from it.
struct Transfer {
  int peer = 0;  ///< rank in the group
  bool sends = false;
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// How the ranks of one group move bytes: all that a backend has to offer. Calls enqueue; they do
/// not block the host.
///
/// All ranks of the group make matching calls in the same order, on one queue each; stages of a
/// pipeline, of which only neighbours exchange, make those that they have a part in. One object has
/// a message space of its own, so two of them may be used on two queues.
class Transport {
 public:
  virtual ~Transport() = default;

  /// The group's name in the process grid.
  virtual const std::string& group() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Announces a collective that steps will issue, by the name that messages use. Before step 1.
  /// @return its index
  virtual int announce(const std::string& name) = 0;
  /// Collective. From here on all moves are within `arena` of each rank, which outlives them: a
  /// transport may map it. Undoes an earlier one.
  virtual void attach(std::span<std::byte> /*arena*/) {}
  /// Between them lies what belongs to collective `index`.
  virtual void begin(execution::Queue& queue, int index) = 0;
  virtual void end(execution::Queue& queue) = 0;
  /// Starts all transfers together: no order of ranks can block. None may be to this rank itself.
  /// What is sent stays as it is until the next move, which may be of nothing, or the end.
  virtual void move(execution::Queue& queue, std::span<const Transfer> transfers) = 0;
};

}  // namespace stowage::parallel
