// Rows of [machine].
#include "forecast/rates/machine_section.hpp"

namespace stowage::inputs {

using forecast::MachineConfig;

template <>
std::vector<Row<MachineConfig>> rows<MachineConfig>() {
  return {
      row(&MachineConfig::name, {.key = "machine.name", .help = "Kind of device, for tables."}),
      row(&MachineConfig::device_memory_bytes, {.key = "machine.device_memory_bytes",
                                                .unit = "B",
                                                .range = between(0, kMostBytes),
                                                .help = "Memory of one device. 0: not known."}),
      row(&MachineConfig::peak_flops_per_s,
          {.key = "machine.peak_flops_per_s",
           .unit = "FLOP/s",
           .range = at_least(0),
           .help =
               "Peak of one device for dense bf16 products by its data sheet, which a predicted "
               "MFU is of. 0: not known."}),
      row(&MachineConfig::power_w,
          {.key = "machine.power_w",
           .unit = "W",
           .range = at_least(0),
           .help =
               "What one device draws while it trains, at most its limit: for predicted energy. "
               "0: not known."}),
      row(&MachineConfig::matmul_flops_per_s,
          {.key = "machine.matmul_flops_per_s",
           .unit = "FLOP/s",
           .range = at_least(0),
           .help = "Measured rate of large bf16 products on random data. 0: not known."}),
      row(&MachineConfig::device_copy_bytes_per_s,
          {.key = "machine.device_copy_bytes_per_s",
           .unit = "B/s",
           .range = at_least(0),
           .help = "Measured device-to-device copy, bytes read plus written. 0: not known."}),
      row(&MachineConfig::op_efficiency,
          {.key = "machine.op_efficiency",
           .help =
               "What kinds of ops reach of the rate of products or device memory that binds them, "
               "as \"mamba/scan 0.5\"; others reach all of it. Steps that are timed op by op "
               "tell."}),
      row(&MachineConfig::d2h_bytes_per_s,
          {.key = "machine.d2h_bytes_per_s",
           .unit = "B/s",
           .range = at_least(0),
           .help = "Measured copy from device to pinned host memory. 0: not known."}),
      row(&MachineConfig::h2d_bytes_per_s,
          {.key = "machine.h2d_bytes_per_s",
           .unit = "B/s",
           .range = at_least(0),
           .help = "Measured copy from pinned host to device memory. 0: not known."}),
      row(&MachineConfig::duplex_bytes_per_s,
          {.key = "machine.duplex_bytes_per_s",
           .unit = "B/s",
           .range = at_least(0),
           .help = "Measured sum of both directions at once. 0: not known."}),
      row(&MachineConfig::allreduce_bytes_per_s,
          {.key = "machine.allreduce_bytes_per_s",
           .unit = "B/s",
           .range = at_least(0),
           .help = "Measured bus bandwidth of a large all-reduce. 0: not known."}),
      row(&MachineConfig::links,
          {.key = "machine.links",
           .help =
               "Measured ways between the ranks of groups, as \"data 1.2e-5 3.4e11\" or \"any:4 "
               "all_reduce 6e-5 1.7e11\": the group's name, or any for those that are not listed; "
               "how many ranks it has, if larger groups are slower (the nearest counts); a kind of "
               "collective, if it has a way of its own; seconds of a message beside its bytes, "
               "bytes per second. stowage_bench_comm measures them."}),
      row(&MachineConfig::links_beside,
          {.key = "machine.links_beside",
           .help =
               "The same while something computes beside, where that takes longer. Steps that are "
               "timed op by op tell."}),
      row(&MachineConfig::ranks_per_node,
          {.key = "machine.ranks_per_node",
           .unit = "ranks",
           .range = between(0, 65536),
           .help =
               "Ranks of a host, whose groups have the bandwidth of machine.allreduce_bytes_per_s; "
               "groups that span hosts have the network's. 0: all are of one host."}),
      row(&MachineConfig::network_latency_s,
          {.key = "machine.network_latency_s",
           .unit = "s",
           .range = at_least(0),
           .help = "Time of a message between hosts beside that of its bytes."}),
      row(&MachineConfig::network_bytes_per_s,
          {.key = "machine.network_bytes_per_s",
           .unit = "B/s",
           .range = at_least(0),
           .help = "What a rank sends to other hosts; those of one host add up. 0: not known."}),
      row(&MachineConfig::ranks_per_switch, {.key = "machine.ranks_per_switch",
                                             .unit = "ranks",
                                             .range = between(0, 1 << 20),
                                             .help = "Ranks whose hosts share a switch. 0: all."}),
      row(&MachineConfig::spine_bytes_per_s,
          {.key = "machine.spine_bytes_per_s",
           .unit = "B/s",
           .range = at_least(0),
           .help = "What a rank sends to hosts of other switches. 0: as to those of its own."}),
      row(&MachineConfig::copy_latency_s,
          {.key = "machine.copy_latency_s",
           .unit = "s",
           .range = at_least(0),
           .help = "Time of a copy over the link beside that of its bytes."}),
      row(&MachineConfig::d2h_slowdown_arithmetic,
          {.key = "machine.d2h_slowdown_arithmetic",
           .range = zero_or_at_least(1),
           .help =
               "Measured factor on the time of compute that arithmetic binds, beside copies to the "
               "host. 0: not known."}),
      row(&MachineConfig::d2h_slowdown_memory,
          {.key = "machine.d2h_slowdown_memory",
           .range = zero_or_at_least(1),
           .help =
               "Measured factor on the time of compute that device memory binds, beside copies to "
               "the host. 0: not known."}),
      row(&MachineConfig::h2d_slowdown_arithmetic,
          {.key = "machine.h2d_slowdown_arithmetic",
           .range = zero_or_at_least(1),
           .help =
               "Measured factor on the time of compute that arithmetic binds, beside copies from "
               "the host. 0: not known."}),
      row(&MachineConfig::h2d_slowdown_memory,
          {.key = "machine.h2d_slowdown_memory",
           .range = zero_or_at_least(1),
           .help = "Measured factor on the time of compute that device memory binds, beside copies "
                   "from the host. 0: not known."}),
  };
}

}  // namespace stowage::inputs
