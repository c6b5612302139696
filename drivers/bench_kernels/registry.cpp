#include "drivers/bench_kernels/entries.hpp"

namespace stowage::drivers::bench {
namespace {

/// Operators whose kernels are Hopper's; what serves in their place elsewhere is not worth timing.
std::vector<Entry> hopper_entries() {
  std::vector<Entry> entries = {attention_forward_entry(),
                                attention_backward_entry(),
                                attention_packed_forward_entry(),
                                attention_packed_backward_entry(),
                                ssd_forward_entry(),
                                ssd_backward_entry(),
                                moe_layer_entry()};
  for (const auto& family : {mixer_entries, gated_delta_entries, grouped_linear_entries,
                             grouped_mlp_entries, fp8_entries, fp8_linear_entries})
    for (Entry& entry : family()) entries.push_back(std::move(entry));
  for (Entry& entry : entries) entry.wgmma = true;
  return entries;
}

}  // namespace

std::vector<Entry> registry() {
  std::vector<Entry> entries = {copy_entry(), conv1d_forward_entry(), conv1d_backward_entry(),
                                product_entry()};
  for (const auto& family : {hopper_entries, linear_entries, cross_entropy_entries, norm_entries,
                             activation_entries, embedding_entries, rope_entries, decode_entries,
                             elementwise_entries, moe_entries, optimizer_entries})
    for (Entry& entry : family()) entries.push_back(std::move(entry));
  return entries;
}

}  // namespace stowage::drivers::bench
