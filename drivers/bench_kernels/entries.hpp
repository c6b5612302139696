#pragma once

#include "drivers/bench_kernels/case.hpp"

/// One function per operator, each in a file of its name.
namespace stowage::drivers::bench {

Entry copy_entry();
Entry attention_forward_entry();
Entry attention_backward_entry();
Entry attention_packed_forward_entry();
Entry attention_packed_backward_entry();
Entry conv1d_forward_entry();
Entry conv1d_backward_entry();
Entry ssd_forward_entry();
Entry ssd_backward_entry();
Entry product_entry();
std::vector<Entry> mixer_entries();
Entry moe_layer_entry();
std::vector<Entry> activation_entries();
std::vector<Entry> cross_entropy_entries();
std::vector<Entry> decode_entries();
std::vector<Entry> elementwise_entries();
std::vector<Entry> embedding_entries();
std::vector<Entry> fp8_entries();
std::vector<Entry> fp8_linear_entries();
std::vector<Entry> gated_delta_entries();
std::vector<Entry> grouped_linear_entries();
std::vector<Entry> grouped_mlp_entries();
std::vector<Entry> linear_entries();
std::vector<Entry> moe_entries();
std::vector<Entry> norm_entries();
std::vector<Entry> optimizer_entries();
std::vector<Entry> rope_entries();

}  // namespace stowage::drivers::bench
