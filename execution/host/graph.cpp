#include "execution/host/graph.hpp"

#include "execution/host/queue.hpp"

namespace stowage::execution::host {

HostGraph::HostGraph(std::shared_ptr<BackendState> backend, std::vector<Node> nodes,
                     std::vector<int> ends)
    : backend_(std::move(backend)), nodes_(std::move(nodes)), ends_(std::move(ends)) {}

// An operation that ends its own graph ends the program: it would wait for itself.
// NOLINTNEXTLINE(bugprone-exception-escape)
HostGraph::~HostGraph() {
  Lock lock(schedule_mutex());
  wait_for(lock, last_);
}

void HostGraph::launch(Queue& queue) {
  HostQueue& launching = host_queue(queue);
  const Lock lock(schedule_mutex());
  Frontier& end = launching.end_for_launch(lock, backend_);
  join(lock, end, last_);  // a graph does not overlap its own previous launch

  std::vector<Frontier> reached(nodes_.size());  // what must be done for a node to be done
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    Frontier before;
    if (node.after.empty()) before = end;
    for (const int earlier : node.after) join(lock, before, reached[earlier]);
    switch (node.kind) {
      case Node::Kind::work:
        before = {submit(lock, backend_, *node.worker, node.work, before)};
        break;
      case Node::Kind::record:
        node.event->set_record(lock, before);
        break;
      case Node::Kind::wait:
        join(lock, before, node.event->record);
        break;
    }
    reached[i] = std::move(before);
  }
  if (nodes_.empty()) return;
  last_.clear();
  for (const int node : ends_) join(lock, last_, reached[node]);
  end = last_;
}

}  // namespace stowage::execution::host
