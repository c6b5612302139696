#include "parallel/groups/overlapping_copy.hpp"

#include "execution/parallel_for.hpp"

namespace stowage::parallel::detail {

void overlapping_copy(execution::Queue& queue, void* to, const void* from, std::size_t bytes) {
#if STOWAGE_HAVE_CUDA
  if (queue.stream() != nullptr) {
    if (bytes == 0) return;
    if (const int code = launch_overlapping_copy(queue.stream(), to, from, bytes); code != 0)
      execution::detail::throw_launch_failed(code);
    return;
  }
#endif
  queue.copy(to, from, bytes);
}

}  // namespace stowage::parallel::detail
