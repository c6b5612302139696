#pragma once

#include <memory>
#include <vector>

#include "execution/host/capture.hpp"

namespace stowage::execution::host {

/// An executable graph of the host backend.
///
/// A launch makes one task for each work node. The nodes of a queue run on that queue's worker but
/// are not ordered with what else is in that queue, as in CUDA: only the launching queue and
/// external events tie a graph to its surroundings.
class HostGraph final : public Graph {
 public:
  /// @param ends the nodes that the launching queue goes on after
  HostGraph(std::shared_ptr<BackendState> backend, std::vector<Node> nodes, std::vector<int> ends);
  HostGraph(const HostGraph&) = delete;
  HostGraph& operator=(const HostGraph&) = delete;
  /// Waits for the last launch.
  ~HostGraph() override;

  void launch(Queue& queue) override;
  std::size_t nodes() const override { return nodes_.size(); }

 private:
  std::shared_ptr<BackendState> backend_;
  std::vector<Node> nodes_;
  std::vector<int> ends_;
  Frontier last_;  ///< the end of the latest launch
};

}  // namespace stowage::execution::host
