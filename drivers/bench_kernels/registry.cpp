#include "drivers/bench_kernels/entries.hpp"

// The build sets STOWAGE_BENCH_<FAMILY> to 1 for the families whose device code is in it.
namespace stowage::drivers::bench {

std::vector<Entry> registry() {
  std::vector<Entry> entries = {copy_entry(), linear_forward_entry()};
#if STOWAGE_BENCH_ATTENTION
  entries.push_back(attention_forward_entry());
  entries.push_back(attention_backward_entry());
#endif
#if STOWAGE_BENCH_CONV1D
  entries.push_back(conv1d_forward_entry());
  entries.push_back(conv1d_backward_entry());
#endif
#if STOWAGE_BENCH_SSD
  entries.push_back(ssd_forward_entry());
  entries.push_back(ssd_backward_entry());
#endif
  return entries;
}

}  // namespace stowage::drivers::bench
