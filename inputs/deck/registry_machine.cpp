// Rows of [machine] and [validate].
#include "inputs/deck/registry.hpp"

namespace stowage::inputs::detail {

using std::string;

std::vector<Parameter> machine_parameters() {
  return {
      {.key = "machine.name", .fallback = string(), .help = "Kind of device, for tables."},
      {.key = "machine.device_memory_bytes",
       .fallback = 0,
       .unit = "B",
       .range = between(0, kMostBytes),
       .help = "Memory of one device. 0: not known."},
      {.key = "machine.matmul_flops_per_s",
       .fallback = 0.0,
       .unit = "FLOP/s",
       .range = at_least(0),
       .help = "Measured rate of large bf16 products on random data. 0: not known."},
      {.key = "machine.device_copy_bytes_per_s",
       .fallback = 0.0,
       .unit = "B/s",
       .range = at_least(0),
       .help = "Measured device-to-device copy, bytes read plus written. 0: not known."},
      {.key = "machine.d2h_bytes_per_s",
       .fallback = 0.0,
       .unit = "B/s",
       .range = at_least(0),
       .help = "Measured copy from device to pinned host memory. 0: not known."},
      {.key = "machine.h2d_bytes_per_s",
       .fallback = 0.0,
       .unit = "B/s",
       .range = at_least(0),
       .help = "Measured copy from pinned host to device memory. 0: not known."},
      {.key = "machine.duplex_bytes_per_s",
       .fallback = 0.0,
       .unit = "B/s",
       .range = at_least(0),
       .help = "Measured sum of both directions at once. 0: not known."},
      {.key = "machine.allreduce_bytes_per_s",
       .fallback = 0.0,
       .unit = "B/s",
       .range = at_least(0),
       .help = "Measured bus bandwidth of a large all-reduce. 0: not known."},
      {.key = "machine.links",
       .fallback = std::vector<string>{},
       .help = "Measured ways between the ranks of groups, as \"data 1.2e-5 3.4e11\": the group's "
               "name, seconds of a message beside its bytes, bytes per second. stowage_bench_comm "
               "measures them."},
      {.key = "machine.copy_latency_s",
       .fallback = 0.0,
       .unit = "s",
       .range = at_least(0),
       .help = "Time of a copy over the link beside that of its bytes."},
      {.key = "machine.d2h_slowdown_arithmetic",
       .fallback = 0.0,
       .range = zero_or_at_least(1),
       .help = "Measured factor on the time of compute that arithmetic binds, beside copies to the "
               "host. 0: not known."},
      {.key = "machine.d2h_slowdown_memory",
       .fallback = 0.0,
       .range = zero_or_at_least(1),
       .help = "Measured factor on the time of compute that device memory binds, beside copies to "
               "the host. 0: not known."},
      {.key = "machine.h2d_slowdown_arithmetic",
       .fallback = 0.0,
       .range = zero_or_at_least(1),
       .help = "Measured factor on the time of compute that arithmetic binds, beside copies from "
               "the host. 0: not known."},
      {.key = "machine.h2d_slowdown_memory",
       .fallback = 0.0,
       .range = zero_or_at_least(1),
       .help = "Measured factor on the time of compute that device memory binds, beside copies "
               "from the host. 0: not known."},
      {.key = "validate.val_loss_below",
       .fallback = kInfinity,
       .unit = "nats/token",
       .help = "The last validation loss must be smaller. inf: not checked."},
      {.key = "validate.val_loss_falling",
       .fallback = false,
       .help = "The last validation loss must be below the one before it."},
      {.key = "validate.loss_below",
       .fallback = kInfinity,
       .unit = "nats/token",
       .help = "The last training loss must be smaller. inf: not checked."},
      {.key = "validate.grad_norm_below",
       .fallback = kInfinity,
       .help = "Every gradient norm after warm-up, before clipping, must be smaller. inf: not "
               "checked."},
      {.key = "validate.finite_differences",
       .fallback = string("auto"),
       .allowed = {"auto", "on", "off"},
       .help = "Before the first step, compare the gradients of a slice of the model (one layer of "
               "each kind, few tokens, fp64 on the host, fp32 on a GPU) with finite differences of "
               "the loss. auto: if that takes a few seconds at most."},
      {.key = "validate.replayed_step",
       .fallback = true,
       .help = "Do the first step twice from the same start: all that it leaves must be the same "
               "to the bit. A run that goes on from a checkpoint has no first step."},
      {.key = "validate.state_digest_interval",
       .fallback = std::int64_t{0},
       .unit = "steps",
       .range = between(0, kMostSteps),
       .help = "Steps between digests of all that a run keeps from step to step, which the result "
               "set holds. 0: of the last step only."},
  };
}

}  // namespace stowage::inputs::detail
