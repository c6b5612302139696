#include "drivers/bench_offload/cases.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "offload/cargo.hpp"
#include "offload/reruns.hpp"

namespace stowage::drivers {
namespace {

using execution::Decision;
using offload::ModuleName;
using offload::PlannerOptions;
using offload::Policy;

/// Every module name whose tensors travel, in the order of forward.
std::vector<ModuleName> all_modules(const execution::Program& program) {
  std::vector<ModuleName> names;
  for (const offload::Cargo& cargo : offload::find_cargo(program)) {
    const std::string& module = program.info(cargo.tensor).module;
    if (std::none_of(names.begin(), names.end(),
                     [&](const ModuleName& name) { return name.name == module; }))
      names.push_back({module, {module}});
  }
  return names;
}

/// Those of them that can be computed again, every tensor, when all are.
std::vector<ModuleName> all_reruns(const execution::Program& program,
                                   std::vector<ModuleName> names) {
  const offload::Reruns reruns(program);
  const std::vector<char> present(program.tensors().size(), 0);
  const std::vector<Decision> kept(program.tensors().size(), Decision::keep);
  for (const offload::Cargo& cargo : offload::find_cargo(program)) {
    std::vector<Decision> decisions = kept;
    decisions[static_cast<std::size_t>(cargo.tensor.id)] = Decision::recompute;
    if (reruns.chain(cargo.tensor, cargo.first_backward, decisions, present)) continue;
    std::erase_if(names, [&](const ModuleName& name) {
      return name.covers(program.info(cargo.tensor).module);
    });
  }
  return names;
}

Policy manual(const Policy& base, std::vector<ModuleName> offload, double fraction, bool hidden) {
  Policy policy = base;
  policy.kind = Policy::Kind::manual;
  policy.offload = std::move(offload);
  policy.recompute.clear();
  policy.fraction = fraction;
  policy.keep_unhidden = hidden;
  return policy;
}

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

}  // namespace

std::vector<OffloadCase> offload_cases(const PlannerOptions& base,
                                       const std::vector<std::string>& modes,
                                       const execution::Program& program, std::size_t persistent,
                                       std::size_t transient) {
  std::vector<std::pair<std::string, Policy>> policies;
  Policy keep = base.policy;
  keep.kind = Policy::Kind::none;
  keep.recompute.clear();
  const std::vector<ModuleName> all = all_modules(program);
  policies.emplace_back("keep", keep);
  policies.emplace_back("free", automatic(keep, 0));
  policies.emplace_back("hidden", manual(keep, all, 1, true));
  for (const int percent : {25, 50, 75, 100})
    policies.emplace_back(fmt::format("fraction_{}", percent),
                          manual(keep, all, percent / 100.0, false));
  for (const int percent : {85, 75, 65, 55, 45, 35, 30})
    policies.emplace_back(
        fmt::format("auto_{}", percent),
        automatic(keep, persistent + transient / 100 * static_cast<std::size_t>(percent)));
  Policy recompute = keep;
  recompute.recompute = all_reruns(program, all);
  policies.emplace_back("recompute", recompute);
  if (base.policy.kind != Policy::Kind::none || !base.policy.recompute.empty())
    policies.emplace_back("deck", base.policy);
  std::vector<OffloadCase> cases;
  for (const auto& [name, policy] : policies)
    for (const std::string& mode : modes) {
      OffloadCase one{name + "/" + mode, base};
      one.options.policy = policy;
      one.options.graphs = graphs(base.graphs, mode);
      cases.push_back(std::move(one));
    }
  return cases;
}

}  // namespace stowage::drivers
