#pragma once

#include "drivers/bench_kernels/case.hpp"

/// One function per operator, each in a file of its name.
namespace stowage::drivers::bench {

Entry copy_entry();
Entry linear_forward_entry();
Entry attention_forward_entry();
Entry attention_backward_entry();
Entry conv1d_forward_entry();
Entry conv1d_backward_entry();
Entry ssd_forward_entry();
Entry ssd_backward_entry();

}  // namespace stowage::drivers::bench
