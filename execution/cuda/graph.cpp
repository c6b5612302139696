#include "execution/cuda/graph.hpp"

#include "execution/cuda/queue.hpp"
#include "execution/cuda_check.hpp"

namespace stowage::execution::cuda {

CudaGraph::CudaGraph(cudaGraph_t graph, cudaStream_t stream) : graph_(graph) {
  try {
    STOWAGE_CUDA(cudaGraphGetNodes(graph_, nullptr, &nodes_));
    // Kernels keep the priority of the queue that they were captured on: see CudaQueue.
    STOWAGE_CUDA(
        cudaGraphInstantiate(&executable_, graph_, cudaGraphInstantiateFlagUseNodePriority));
    STOWAGE_CUDA(cudaGraphUpload(executable_, stream));
  } catch (...) {
    if (executable_ != nullptr) (void)cudaGraphExecDestroy(executable_);
    (void)cudaGraphDestroy(graph_);
    throw;
  }
}

CudaGraph::~CudaGraph() {
  (void)cudaGraphExecDestroy(executable_);  // the runtime waits for a launch that is under way
  (void)cudaGraphDestroy(graph_);
}

void CudaGraph::launch(Queue& queue) {
  STOWAGE_CUDA(cudaGraphLaunch(executable_, cuda_queue(queue).handle()));
}

}  // namespace stowage::execution::cuda
