#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "execution/host/event.hpp"
#include "execution/host/task.hpp"

namespace stowage::execution::host {

class HostQueue;

/// A node of a graph: work, or the record or wait of an external event.
struct Node {
  enum class Kind : unsigned char { work, record, wait };

  Kind kind = Kind::work;
  std::vector<int> after;             ///< earlier nodes; none: starts with the graph
  std::string queue;                  ///< on which it was captured
  std::shared_ptr<Worker> worker;     ///< of that queue: runs the work
  std::shared_ptr<const Work> work;   ///< of a work node
  std::shared_ptr<EventState> event;  ///< of a record or wait node
};

/// A capture under way: the nodes so far, and the queues that are in it.
struct Capture {
  std::thread::id thread = std::this_thread::get_id();  ///< that began it
  HostQueue* origin = nullptr;                          ///< on which it began
  std::string name;                                     ///< of that queue
  std::vector<Node> nodes;
  std::vector<HostQueue*> queues;  ///< that are in it, the origin too
  std::string failure;             ///< why it is invalid, if it is
  bool live = true;                ///< not ended yet

  int add(Node node) {
    nodes.push_back(std::move(node));
    return static_cast<int>(nodes.size()) - 1;
  }

  /// Invalidates the capture and throws; end_capture throws again and names the first cause.
  [[noreturn]] void fail(const Lock& lock, const std::string& why);
};

/// Makes a capture known to refuse_while_capturing, until it is forgotten.
std::shared_ptr<Capture> make_capture(const Lock& lock, HostQueue& origin, std::string name);
void forget(const Lock& lock, Capture& capture);

/// Throws, and invalidates the captures, if this host thread captures on any queue: then it may
/// not wait for work, not even for work elsewhere.
void refuse_while_capturing(const Lock& lock, const std::string& what);

/// The queue of a node that does not lead to one of `ends`; empty: all forks are joined.
std::string unjoined(const std::vector<Node>& nodes, const std::vector<int>& ends);

}  // namespace stowage::execution::host
