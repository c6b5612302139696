#pragma once

#include <cuda_runtime_api.h>

#include "execution/backend.hpp"

namespace stowage::execution::cuda {

/// An instantiated CUDA graph. The runtime orders its launches after one another.
class CudaGraph final : public Graph {
 public:
  /// Instantiates and takes over `graph`; its upload is enqueued on `stream`.
  CudaGraph(cudaGraph_t graph, cudaStream_t stream);
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph() override;

  void launch(Queue& queue) override;
  std::size_t nodes() const override { return nodes_; }

 private:
  cudaGraph_t graph_;
  cudaGraphExec_t executable_ = nullptr;
  std::size_t nodes_ = 0;
};

}  // namespace stowage::execution::cuda
