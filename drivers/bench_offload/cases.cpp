#include "drivers/bench_offload/cases.hpp"

#include <fmt/core.h>

#include "forecast/plan/policies.hpp"

namespace stowage::drivers {
namespace {

using offload::ModuleName;
using offload::PlannerOptions;
using offload::Policy;

Policy automatic(const Policy& base, std::size_t budget) {
  Policy policy = base;
  policy.kind = Policy::Kind::automatic;
  policy.recompute.clear();
  policy.device_budget_bytes = static_cast<std::int64_t>(budget);
  return policy;
}

offload::GraphOptions graphs(const offload::GraphOptions& base, const std::string& mode) {
  using Mode = offload::GraphOptions::Mode;
  offload::GraphOptions options = base;
  options.mode = mode == "step" ? Mode::step : mode == "scopes" ? Mode::scopes : Mode::off;
  if (options.scopes.empty()) options.scopes = {"layer"};
  return options;
}

OffloadCase make_case(const PlannerOptions& base, const std::string& name, const Policy& policy,
                      const std::string& mode) {
  OffloadCase one{name + "/" + mode, base};
  one.options.policy = policy;
  one.options.graphs = graphs(base.graphs, mode);
  return one;
}

}  // namespace

std::vector<OffloadCase> offload_cases(const PlannerOptions& base,
                                       const std::vector<std::string>& modes,
                                       const execution::Program& program, const SweepBytes& bytes) {
  std::vector<std::pair<std::string, Policy>> policies;
  const Policy keep = forecast::no_policy(base.policy);
  const std::vector<ModuleName> all = forecast::all_modules(program);
  policies.emplace_back("keep", keep);
  policies.emplace_back("free", automatic(keep, 0));
  policies.emplace_back("hidden", forecast::manual_policy(keep, all, 1, true));
  for (const int percent : {25, 50, 75, 100})
    policies.emplace_back(fmt::format("fraction_{}", percent),
                          forecast::manual_policy(keep, all, percent / 100.0, false));
  for (const int percent : {85, 75, 65, 55, 45, 35, 30})
    policies.emplace_back(
        fmt::format("auto_{}", percent),
        automatic(keep, bytes.persistent + bytes.kept / 100 * static_cast<std::size_t>(percent)));
  policies.emplace_back("auto_recompute", automatic(keep, bytes.persistent + bytes.recomputed));
  Policy no_reuse = keep;
  no_reuse.reuse_gradient_memory = false;
  for (const int percent : {75, 55})
    policies.emplace_back(
        fmt::format("no_berths_{}", percent),
        automatic(no_reuse,
                  bytes.persistent + bytes.kept / 100 * static_cast<std::size_t>(percent)));
  policies.emplace_back("no_berths_recompute",
                        automatic(no_reuse, bytes.persistent + bytes.recomputed));
  policies.emplace_back("recompute", forecast::full_recompute(keep, program));
  if (base.policy.kind != Policy::Kind::none || !base.policy.recompute.empty())
    policies.emplace_back(kDeckCase, base.policy);
  std::vector<OffloadCase> cases{make_case(base, "keep", keep, "off")};
  for (const auto& [name, policy] : policies)
    for (const std::string& mode : modes)
      if (OffloadCase one = make_case(base, name, policy, mode); one.name != cases.front().name)
        cases.push_back(std::move(one));
  return cases;
}

}  // namespace stowage::drivers
