#include "run/measure/gemm.hpp"

namespace stowage::run {

using execution::Dtype;
using kernels::Transpose;

Gemm::Gemm(GemmShape shape, int candidates)
    : plan_(kernels::dense_shape(shape.m, shape.n, shape.k, Transpose::no, Transpose::yes,
                                 Dtype::bf16, Dtype::bf16, false),
            candidates) {}

void Gemm::enqueue(execution::Queue& queue, const void* x, const void* w, void* y, void* workspace,
                   int candidate) const {
  plan_.run(candidate, x, w, y, workspace, static_cast<cudaStream_t>(queue.stream()));
}

}  // namespace stowage::run
