#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/ssd/ssd_layout.hpp"

/// The scan for any head_dim, state and stride, in fp32 or bf16 storage, all arithmetic in fp32.
/// It serves what the tensor-core kernels (ssd_cuda.hpp) do not.
namespace stowage::kernels::ssd {

/// Rows of a matrix in device memory.
struct SimpleMatrix {
  const void* data = nullptr;
  std::int64_t stride = 0;  ///< elements between rows
};

struct SimpleScan {
  bool bf16 = false;  ///< storage: bf16, else fp32
  int tokens = 0, heads = 0, head_dim = 0, groups = 0, state = 0;
  float dt_min = 0, dt_max = 0;
  SimpleMatrix x, dt, b, c;
  const void* a_log = nullptr;
  const void* d = nullptr;
  const void* dt_bias = nullptr;
  const int* seq_idx = nullptr;
  const float* initial_state = nullptr;  ///< (heads, head_dim, state), or nullptr for zero
  float* workspace = nullptr;            ///< ssd_cuda_forward_bytes or ssd_cuda_backward_bytes

  int chunks() const { return static_cast<int>(simple_chunks(tokens)); }
  std::int64_t states() const {
    return static_cast<std::int64_t>(chunks()) * heads * head_dim * state;
  }
};

struct SimpleResults {
  SimpleMatrix y;                ///< (tokens, heads * head_dim) of the storage type
  float* final_state = nullptr;  ///< (heads, head_dim, state), or nullptr
  float* total_decay = nullptr;  ///< (heads), or nullptr
};

struct SimpleGradients {
  SimpleMatrix dy;
  SimpleMatrix dx, ddt, db, dc;  ///< written
  float* da_log = nullptr;
  float* dd = nullptr;
  float* ddt_bias = nullptr;
  const float* dfinal_state = nullptr;  ///< given, or nullptr for zero
  float* dinitial_state = nullptr;      ///< written, or nullptr
  bool accumulate = false;
};

/// Shared memory of the larger kernel: a shape that needs more than a block may have is not served.
std::int64_t simple_shared_bytes(int head_dim, int state);

cudaError_t launch_simple_forward(const SimpleScan& scan, const SimpleResults& results,
                                  cudaStream_t stream);
cudaError_t launch_simple_backward(const SimpleScan& scan, const SimpleGradients& gradients,
                                   cudaStream_t stream);

/// What a segment leaves, (heads, head_dim, state) and then (heads) decays: the state after it from
/// `scan.x`, and the adjoint before it. Neither reads scan.initial_state or scan.workspace.
cudaError_t launch_segment_state(const SimpleScan& scan, float* to, cudaStream_t stream);
cudaError_t launch_segment_adjoint(const SimpleScan& scan, const SimpleMatrix& dy, float* to,
                                   cudaStream_t stream);

}  // namespace stowage::kernels::ssd
