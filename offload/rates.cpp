#include "offload/rates.hpp"

#include <algorithm>

#include "execution/op_kind.hpp"

namespace stowage::offload {
namespace {

/// The nearest of those listed; none: null.
const Link* find(const Rates::Links& links, const std::string& group, const std::string& kind) {
  if (links.empty()) return nullptr;
  for (const std::string& listed : {group + " " + kind, group, "any " + kind, std::string("any")})
    if (const auto found = links.find(listed); found != links.end()) return &found->second;
  return nullptr;
}

}  // namespace

double Rates::memory_s(const execution::Cost& cost) const {
  return (cost.bytes + cost.apart_bytes) / (device_bytes_per_s * memory_efficiency);
}

double Rates::roofline_s(const execution::Cost& cost) const {
  const double apart_s = memory_s({.apart_bytes = cost.apart_bytes});
  return (1 + cost.more_kernels) * op_s + apart_s +
         std::max((cost.flops + cost.idle_flops) / flops_per_s, memory_s(cost) - apart_s);
}

const Link& Rates::link_of(const std::string& group, const std::string& kind) const {
  const Link* found = find(links, group, kind);
  return found == nullptr ? link : *found;
}

double Rates::with_compute_s(const std::string& group, const std::string& kind,
                             double bytes) const {
  const double alone_s = link_of(group, kind).time_s(bytes);
  const Link* with_compute = find(links_with_compute, group, kind);
  return with_compute == nullptr ? alone_s : std::max(alone_s, with_compute->time_s(bytes));
}

double Rates::with_compute_s(const execution::Program& program, int op) const {
  const execution::Op& what = program.ops()[op];
  if (is_measured(op) || !what.communication) return time_s(program, op);
  return with_compute_s(what.communication->group, what.communication->kind, what.cost.bytes);
}

double Rates::efficiency_of(std::string_view kind) const {
  if (efficiency.empty()) return 1;
  for (std::size_t length = kind.size(); length != std::string_view::npos;
       length = kind.substr(0, length).rfind('_'))
    if (const auto found = efficiency.find(kind.substr(0, length)); found != efficiency.end())
      return found->second;
  return 1;
}

double Rates::estimated_s(const execution::Op& op) const {
  switch (op.lane) {
    case execution::Lane::d2h:
      return op.cost.bytes / d2h_bytes_per_s;
    case execution::Lane::h2d:
      return op.cost.bytes / h2d_bytes_per_s;
    case execution::Lane::comm: {
      const auto& what = op.communication;
      return (what ? link_of(what->group, what->kind) : link).time_s(op.cost.bytes);
    }
    case execution::Lane::compute:
      break;
  }
  return roofline_s(op.cost) / efficiency_of(execution::op_kind(op.name));
}

bool Rates::is_measured(int op) const {
  const auto at = static_cast<std::size_t>(op);
  return at < measured_s.size() && measured_s[at] > 0;
}

double Rates::time_s(const execution::Program& program, int op) const {
  if (is_measured(op)) return measured_s[static_cast<std::size_t>(op)];
  const execution::Op& what = program.ops()[op];
  return (what.lane == execution::Lane::compute ? scale : 1.0) * estimated_s(what);
}

double Rates::with_copies(const execution::Program& program, int op,
                          const Slowdown& slowdown) const {
  const auto at = static_cast<std::size_t>(op);
  const execution::Op& what = program.ops()[at];
  // Both times are estimates without `scale`, or it would decide what binds an op.
  const double whole_s = is_measured(op) ? measured_s[at] : estimated_s(what);
  const double part = std::min(1.0, memory_s(what.cost) / whole_s);
  return slowdown.arithmetic + part * (slowdown.memory - slowdown.arithmetic);
}

double Rates::duplex_slowdown() const {
  return std::max(1.0, (d2h_bytes_per_s + h2d_bytes_per_s) / duplex_bytes_per_s);
}

}  // namespace stowage::offload
