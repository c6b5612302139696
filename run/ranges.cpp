#include "run/ranges.hpp"

#if STOWAGE_HAVE_CUDA
#include "execution/cuda_ranges.hpp"
#endif

namespace stowage::run {

#if STOWAGE_HAVE_CUDA
Ranges::Ranges(const Machine& machine, Trainer& trainer) {
  if (!machine.has_gpu()) return;
  for (execution::Executor* executor : trainer.executors()) {
    marked_.push_back(
        {executor, execution::make_nvtx_ranges(executor->program(), executor->plan())});
    executor->add(*marked_.back().observer);
  }
}
#else
Ranges::Ranges(const Machine&, Trainer&) {}
#endif

Ranges::~Ranges() {
  for (const Marked& marked : marked_) marked.executor->remove(*marked.observer);
}

}  // namespace stowage::run
