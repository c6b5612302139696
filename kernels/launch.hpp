#pragma once

#include <source_location>
#include <type_traits>

#include "kernels/dispatch.hpp"

#if STOWAGE_HAVE_CUDA
#include "execution/cuda_check.hpp"
#endif

namespace stowage::kernels {

/// Runs an operator that has device code: enqueues `reference.operator()<S>()` on the host, calls
/// `launch.operator()<S>(stream)` at once on a GPU.
///
/// S is the storage type: float or Bf16 on a GPU, double too on the host. `launch` returns the
/// cudaError_t of its launches as an int, so that headers of launchers need no CUDA; it is a
/// template, so that a build without CUDA never asks for their code.
/// @throws Error if the launch fails, or if `storage` is fp64 on a GPU
template <class Reference, class Launch>
void run(execution::Queue& queue, std::string_view op, execution::Dtype storage,
         Reference reference, [[maybe_unused]] const Launch& launch) {
#if STOWAGE_HAVE_CUDA
  run(queue, storage, std::move(reference), [&](void* stream) {
    execution::with_storage_type(storage, [&]<class S>() {
      if constexpr (std::is_same_v<S, double>) {
        throw execution::Error(execution::Exit::runtime,
                               fmt::format("{}: fp64 is for the host backend only", op));
      } else if (const int code = launch.template operator()<S>(stream); code != 0) {
        execution::throw_cuda_failed(op, static_cast<cudaError_t>(code),
                                     std::source_location::current());
      }
    });
  });
#else
  run(queue, op, storage, std::move(reference));
#endif
}

}  // namespace stowage::kernels
