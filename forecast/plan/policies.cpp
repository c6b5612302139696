#include "forecast/plan/policies.hpp"

#include <algorithm>

#include "offload/reruns.hpp"
#include "offload/saved_tensors.hpp"

namespace stowage::forecast {

using execution::Decision;
using offload::ModuleName;
using offload::Policy;

namespace {

/// Those of them that can be computed again, every tensor, when all are.
std::vector<ModuleName> all_reruns(const execution::Program& program,
                                   std::vector<ModuleName> names) {
  const offload::Reruns reruns(program);
  const std::vector<char> present(program.tensors().size(), 0);
  const std::vector<Decision> kept(program.tensors().size(), Decision::keep);
  for (const offload::SavedTensor& saved : offload::find_saved_tensors(program)) {
    std::vector<Decision> decisions = kept;
    decisions[saved.tensor.id] = Decision::recompute;
    if (reruns.chain(saved.tensor, saved.first_backward, decisions, present)) continue;
    std::erase_if(names, [&](const ModuleName& name) {
      return name.covers(program.info(saved.tensor).module);
    });
  }
  return names;
}

}  // namespace

std::vector<ModuleName> all_modules(const execution::Program& program) {
  std::vector<ModuleName> names;
  for (const offload::SavedTensor& saved : offload::find_saved_tensors(program)) {
    const std::string& module = program.info(saved.tensor).module;
    if (std::none_of(names.begin(), names.end(),
                     [&](const ModuleName& name) { return name.name == module; }))
      names.push_back({module, {module}});
  }
  return names;
}

Policy manual_policy(const Policy& base, std::vector<ModuleName> offload, double fraction,
                     bool keep_exposed) {
  Policy policy = base;
  policy.kind = Policy::Kind::manual;
  policy.offload = std::move(offload);
  policy.recompute.clear();
  policy.fraction = fraction;
  policy.keep_exposed = keep_exposed;
  return policy;
}

Policy no_policy(const Policy& base) {
  Policy policy = base;
  policy.kind = Policy::Kind::none;
  policy.recompute.clear();
  return policy;
}

Policy full_offload(const Policy& base, const execution::Program& program) {
  return manual_policy(base, all_modules(program), 1, false);
}

Policy full_recompute(const Policy& base, const execution::Program& program) {
  Policy policy = base;
  policy.kind = Policy::Kind::none;
  policy.recompute = all_reruns(program, all_modules(program));
  return policy;
}

}  // namespace stowage::forecast
