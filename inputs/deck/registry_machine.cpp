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
      {.key = "machine.op_efficiency",
       .fallback = std::vector<string>{},
       .help =
           "What kinds of ops reach of the rate of products or device memory that binds them, "
           "as \"mamba/scan 0.5\"; others reach all of it. Steps that are timed op by op tell."},
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
       .help = "Measured ways between the ranks of groups, as \"data 1.2e-5 3.4e11\" or \"any:4 "
               "all_reduce 6e-5 1.7e11\": the group's name, or any for those that are not listed; "
               "how many ranks it has, if larger groups are slower (the nearest counts); a kind of "
               "collective, if it has a way of its own; seconds of a message beside its bytes, "
               "bytes per second. stowage_bench_comm measures them."},
      {.key = "machine.links_beside",
       .fallback = std::vector<string>{},
       .help = "The same while something computes beside, where that takes longer. Steps that are "
               "timed op by op tell."},
      {.key = "machine.ranks_per_node",
       .fallback = 0,
       .unit = "ranks",
       .range = between(0, 65536),
       .help = "Ranks of a host, whose groups have the bandwidth of machine.allreduce_bytes_per_s; "
               "groups that span hosts have the network's. 0: all are of one host."},
      {.key = "machine.network_latency_s",
       .fallback = 0.0,
       .unit = "s",
       .range = at_least(0),
       .help = "Time of a message between hosts beside that of its bytes."},
      {.key = "machine.network_bytes_per_s",
       .fallback = 0.0,
       .unit = "B/s",
       .range = at_least(0),
       .help = "What a rank sends to other hosts; those of one host add up. 0: not known."},
      {.key = "machine.ranks_per_switch",
       .fallback = 0,
       .unit = "ranks",
       .range = between(0, 1 << 20),
       .help = "Ranks whose hosts share a switch. 0: all."},
      {.key = "machine.spine_bytes_per_s",
       .fallback = 0.0,
       .unit = "B/s",
       .range = at_least(0),
       .help = "What a rank sends to hosts of other switches. 0: as to those of its own."},
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
      {.key = "validate.most_skipped_steps",
       .fallback = 1,
       .unit = "steps",
       .range = between(0, kMostSteps),
       .help = "Steps of a run that may be skipped, since their gradient is not finite or a spike "
               "(optim.spike_factor): more make it invalid."},
      {.key = "validate.bad_steps_again",
       .fallback = true,
       .help = "Do a step that is to be skipped once more from the same state: other bits than the "
               "first time are an error of the machine, the same bits are in the state or the "
               "tokens. It is skipped if it is bad again."},
      {.key = "validate.own_norms",
       .fallback = false,
       .help = "Of a step that is done again, tell by each rank's own gradients, too, which rank "
               "an error of the machine was on; else by its loss alone. Every step reads the "
               "gradients once more."},
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
