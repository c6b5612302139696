#include "kernels/blas_memory.hpp"

#include <cblas.h>
#include <sys/mman.h>

#include <cstddef>
#include <vector>

#include "execution/error.hpp"

// OpenBLAS's own. The last two are in no header of it, and a build of it may hide them.
extern "C" {
int openblas_get_num_threads() __attribute__((weak));
void* blas_memory_alloc(int place) __attribute__((weak));
void blas_memory_free(void* buffer) __attribute__((weak));
}

namespace stowage::kernels {
namespace {

/// Of a buffer: BUFFER_SIZE of OpenBLAS 0.3 on x86-64, its largest.
constexpr std::size_t kBufferBytes = std::size_t{128} << 20;

/// How many buffers, up to `most`, the process may have beside what it has.
int room_for_buffers(int most) {
  std::vector<void*> mapped;
  while (static_cast<int>(mapped.size()) < most) {
    void* room =
        ::mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) break;
    mapped.push_back(room);
  }
  for (void* room : mapped) ::munmap(room, kBufferBytes);
  return static_cast<int>(mapped.size());
}

}  // namespace

void take_blas_memory(int threads) {
  if (openblas_get_num_threads == nullptr) return;  // another library keeps its own account
  // The library's own threads, started as it was loaded, may still want theirs.
  const int wanted = threads + openblas_get_num_threads();
  if (const int room = room_for_buffers(wanted); room < wanted)
    execution::throw_environment(
        "too little memory: matrix products want {} buffers of {} MiB of address space for {} "
        "compute threads, there is room for {}: allow more (ulimit -v), or set OMP_NUM_THREADS to "
        "fewer",
        wanted, kBufferBytes >> 20, threads, room);
  if (blas_memory_alloc == nullptr || blas_memory_free == nullptr) return;
  std::vector<void*> buffers;
  for (int thread = 0; thread < threads; ++thread) buffers.push_back(blas_memory_alloc(0));
  for (void* buffer : buffers) blas_memory_free(buffer);
}

}  // namespace stowage::kernels
