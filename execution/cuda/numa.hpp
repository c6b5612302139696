#pragma once

namespace stowage::execution::cuda {

/// While it lives, this thread's new pages come from the memory next to the current GPU, as far as
/// there is any. Where the system does not say which memory that is, or does not let a program
/// choose, nothing changes.
class NearGpu {
 public:
  NearGpu();
  NearGpu(const NearGpu&) = delete;
  NearGpu& operator=(const NearGpu&) = delete;
  ~NearGpu();

 private:
  bool chosen_ = false;
};

/// The NUMA node next to the current GPU; -1: not known.
int numa_node_of_gpu();

}  // namespace stowage::execution::cuda
