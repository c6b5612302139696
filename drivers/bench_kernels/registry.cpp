#include "drivers/bench_kernels/entries.hpp"

// The build sets STOWAGE_BENCH_<FAMILY> to 1 for the families whose device code is in it.
namespace stowage::drivers::bench {

std::vector<Entry> registry() {
  std::vector<Entry> entries = {copy_entry()};
#if STOWAGE_BENCH_ATTENTION
  entries.push_back(attention_forward_entry());
  entries.push_back(attention_backward_entry());
  entries.push_back(attention_packed_forward_entry());
  entries.push_back(attention_packed_backward_entry());
#endif
#if STOWAGE_BENCH_CONV1D
  entries.push_back(conv1d_forward_entry());
  entries.push_back(conv1d_backward_entry());
#endif
#if STOWAGE_BENCH_SSD
  entries.push_back(ssd_forward_entry());
  entries.push_back(ssd_backward_entry());
  for (Entry& entry : mixer_entries()) entries.push_back(std::move(entry));
#endif
#if STOWAGE_BENCH_GROUPED_LINEAR
  for (const auto& family : {grouped_linear_entries, grouped_mlp_entries})
    for (Entry& entry : family()) entries.push_back(std::move(entry));
  entries.push_back(moe_layer_entry());
#endif
  entries.push_back(product_entry());
  for (const auto& family :
       {linear_entries, cross_entropy_entries, norm_entries, activation_entries, embedding_entries,
        rope_entries, elementwise_entries, moe_entries, optimizer_entries})
    for (Entry& entry : family()) entries.push_back(std::move(entry));
  return entries;
}

}  // namespace stowage::drivers::bench
