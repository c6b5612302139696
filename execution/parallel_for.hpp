#pragma once

#include <cstdint>

#include "execution/host_loops.hpp"
#include "execution/queue.hpp"

/// In front of the operator() of a functor for parallel_for.
#if defined(__CUDACC__)
#define STOWAGE_PORTABLE __host__ __device__
#else
#define STOWAGE_PORTABLE
#endif

namespace stowage::execution {
namespace detail {

/// Iterations of one block of a host loop: enough to be worth a thread's while.
inline constexpr std::int64_t kPortableGrain = 4096;

/// Launches `functor(i)` for [0, count) on a cudaStream_t and returns the cudaError_t. Defined in
/// parallel_for.cuh, and instantiated by the .cu file that names the functor.
template <class Functor>
int launch_on_stream(void* stream, std::int64_t count, const Functor& functor);

/// Out of line because this header is also read by nvcc, which cannot compile fmt.
[[noreturn]] void throw_launch_failed(int code);

}  // namespace detail

/// Calls `functor(i)` for each i in [0, count), in any order, on the queue's backend: elementwise
/// work that is written once. On the host by host_for, on the GPU by a plain launch.
///
/// A functor is a plain struct of pointers and numbers with
/// `STOWAGE_PORTABLE void operator()(std::int64_t i) const`. With CUDA, one .cu file names it:
/// `STOWAGE_INSTANTIATE_PARALLEL_FOR(ScaleRows)` (parallel_for.cuh), so that the operator itself
/// stays in a .cpp file and no .cu file includes Kokkos. Where a plain launch does not do, the
/// functor's header declares a `launch_on_stream` for it, and its .cu file defines that.
/// Iterations must not depend on each other.
template <class Functor>
void parallel_for(Queue& queue, std::int64_t count, const Functor& functor) {
  if (count <= 0) return;
#if STOWAGE_HAVE_CUDA
  if (queue.stream() != nullptr) {
    using detail::launch_on_stream;
    if (const int code = launch_on_stream(queue.stream(), count, functor); code != 0)
      detail::throw_launch_failed(code);
    return;
  }
#endif
  queue.enqueue([count, functor] {
    host_for(count, detail::kPortableGrain, [&functor](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) functor(i);
    });
  });
}

}  // namespace stowage::execution
