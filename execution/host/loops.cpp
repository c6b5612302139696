#include "execution/host_loops.hpp"

#include <omp.h>
#include <Kokkos_Core.hpp>
#include <algorithm>
#include <atomic>
#include <exception>

#include "execution/host/compute_thread.hpp"
#include "execution/host_threads.hpp"

namespace stowage::execution {
namespace {

using Space = Kokkos::DefaultHostExecutionSpace;
// One block at a time: blocks may differ in cost, as rows of causal attention do.
using Policy =
    Kokkos::RangePolicy<Space, Kokkos::Schedule<Kokkos::Dynamic>, Kokkos::IndexType<std::int64_t>>;

/// True where a loop may start parallel work: in the compute thread, outside of another loop.
thread_local bool may_fork = false;
thread_local bool owns_kokkos = false;

/// Clears may_fork while a parallel loop runs in this thread.
class NoFork {
 public:
  NoFork() { may_fork = false; }
  ~NoFork() { may_fork = true; }
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
};

/// Runs `block(index)` for [0, blocks) in parallel; rethrows the first exception.
template <class Block>
void run_parallel(std::int64_t blocks, const Block& block) {
  const NoFork guard;
  std::atomic<bool> failed = false;
  std::exception_ptr error;
  Kokkos::parallel_for("stowage::host_for", Policy(Space(), 0, blocks, Kokkos::ChunkSize(1)),
                       [&](std::int64_t index) {
                         // An exception may not leave a parallel region.
                         try {
                           if (!failed) block(index);
                         } catch (...) {
                           if (!failed.exchange(true)) error = std::current_exception();
                         }
                       });
  Space().fence();
  if (error) std::rethrow_exception(error);
}

}  // namespace

void host_for(std::int64_t count, std::int64_t grain,
              const std::function<void(std::int64_t, std::int64_t)>& body) {
  grain = std::max<std::int64_t>(grain, 1);
  const std::int64_t blocks = (count + grain - 1) / grain;
  const auto block = [&](std::int64_t index) {
    body(index * grain, std::min(count, (index + 1) * grain));
  };
  if (may_fork && blocks > 1) {
    run_parallel(blocks, block);
  } else {
    for (std::int64_t index = 0; index < blocks; ++index) block(index);
  }
}

namespace host {

void start_kokkos() {
  if (!Kokkos::is_initialized()) {
    const int threads = host_threads();
    require_host_threads(threads);
    omp_set_num_threads(threads);
    // Without its warnings: it would advise each rank on thread binding, which is the launcher's.
#if KOKKOS_VERSION >= 30700
    Kokkos::initialize(Kokkos::InitializationSettings().set_disable_warnings(true));
#else
    Kokkos::InitArguments arguments;
    arguments.disable_warnings = true;
    Kokkos::initialize(arguments);
#endif
    owns_kokkos = true;
  }
  may_fork = true;
}

void stop_kokkos() {
  may_fork = false;
  if (owns_kokkos) Kokkos::finalize();
}

}  // namespace host
}  // namespace stowage::execution
