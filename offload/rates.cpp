#include "offload/rates.hpp"

#include <algorithm>

namespace stowage::offload {

double Rates::memory_s(const execution::Op& op) const {
  return op.cost.bytes / (device_bytes_per_s * memory_efficiency);
}

const Link& Rates::link_of(const execution::Op& op) const {
  if (!op.communication) return link;
  const auto found = links.find(op.communication->group);
  return found == links.end() ? link : found->second;
}

double Rates::estimated_s(const execution::Op& op) const {
  switch (op.lane) {
    case execution::Lane::d2h:
      return op.cost.bytes / d2h_bytes_per_s;
    case execution::Lane::h2d:
      return op.cost.bytes / h2d_bytes_per_s;
    case execution::Lane::comm:
      return link_of(op).latency_s + op.cost.bytes / link_of(op).bytes_per_s;
    case execution::Lane::compute:
      break;
  }
  return std::max({op_s, op.cost.flops / flops_per_s, memory_s(op)});
}

double Rates::time_s(const execution::Program& program, int op) const {
  if (const auto at = static_cast<std::size_t>(op); at < measured_s.size() && measured_s[at] > 0)
    return measured_s[at];
  const execution::Op& what = program.ops()[op];
  return (what.lane == execution::Lane::compute ? scale : 1.0) * estimated_s(what);
}

double Rates::beside_copies(const execution::Program& program, int op,
                            const Slowdown& slowdown) const {
  const auto at = static_cast<std::size_t>(op);
  const execution::Op& what = program.ops()[at];
  const bool measured = at < measured_s.size() && measured_s[at] > 0;
  // Both times are estimates without `scale`, or it would decide what binds an op.
  const double whole_s = measured ? measured_s[at] : estimated_s(what);
  const double part = std::min(1.0, memory_s(what) / whole_s);
  return slowdown.arithmetic + part * (slowdown.memory - slowdown.arithmetic);
}

double Rates::duplex_slowdown() const {
  return std::max(1.0, (d2h_bytes_per_s + h2d_bytes_per_s) / duplex_bytes_per_s);
}

}  // namespace stowage::offload
