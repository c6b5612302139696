#include "offload/rates.hpp"

#include <algorithm>

namespace stowage::offload {

double Rates::time_s(const execution::Program& program, int op) const {
  if (const auto at = static_cast<std::size_t>(op); at < measured_s.size() && measured_s[at] > 0)
    return measured_s[at];
  const execution::Op& what = program.ops()[static_cast<std::size_t>(op)];
  const execution::Cost& cost = what.cost;
  switch (what.lane) {
    case execution::Lane::d2h:
      return cost.bytes / d2h_bytes_per_s;
    case execution::Lane::h2d:
      return cost.bytes / h2d_bytes_per_s;
    case execution::Lane::comm:
      return std::max(op_s, cost.bytes / link_bytes_per_s);
    case execution::Lane::compute:
      break;
  }
  const double memory_s = cost.bytes / (device_bytes_per_s * memory_efficiency);
  return scale * std::max({op_s, cost.flops / flops_per_s, memory_s});
}

double Rates::beside_copies(const execution::Program& program, int op,
                            const Slowdown& slowdown) const {
  const double bytes_s =
      program.ops()[static_cast<std::size_t>(op)].cost.bytes / device_bytes_per_s;
  const double part = std::min(1.0, bytes_s / time_s(program, op));
  return slowdown.arithmetic + part * (slowdown.memory - slowdown.arithmetic);
}

double Rates::duplex_slowdown() const {
  return std::max(1.0, (d2h_bytes_per_s + h2d_bytes_per_s) / duplex_bytes_per_s);
}

}  // namespace stowage::offload
