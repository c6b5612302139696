#include "offload/manual.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "execution/error.hpp"

namespace stowage::offload {

using execution::Decision;
using execution::Program;

bool ModuleName::covers(const std::string& module) const {
  return std::find(modules.begin(), modules.end(), module) != modules.end();
}

std::string with_state_copy(const Policy& policy) {
  if (policy.state_copy_bytes == 0) return {};
  return fmt::format(
      " and a copy of that for checkpoints (checkpoint.copy = \"device\", {} bytes; \"host\", "
      "\"none\" "
      "and "
      "\"auto\" do without)",
      policy.state_copy_bytes);
}

std::string_view text(Reason reason) {
  switch (reason) {
    case Reason::asked:
      return "listed";
    case Reason::not_asked:
      return "not listed";
    case Reason::small:
      return "below min_tensor_bytes";
    case Reason::fraction:
      return "beyond the fraction";
    case Reason::pipeline_delta:
      return "kept by this pipeline rank";
    case Reason::exposed:
      return "could not come back in time";
    case Reason::no_rerun:
      return "cannot be computed again";
    case Reason::free:
      return "costs nothing";
    case Reason::in_gradient_memory:
      return "where gradients come later";
    case Reason::budget:
      return "needed to fit the budget";
    case Reason::not_needed:
      return "not needed to fit";
    case Reason::host_budget:
      return "no room on the host";
  }
  return "?";
}

namespace {

const execution::TensorInfo& info_of(const Program& program, const SavedTensor& saved) {
  return program.info(saved.tensor);
}

bool listed(const std::vector<ModuleName>& names, const std::string& module) {
  return std::any_of(names.begin(), names.end(),
                     [&](const ModuleName& name) { return name.covers(module); });
}

/// The scope of kind "layer" in which a tensor is written, or its own op: what an alias joins.
int home(const Program& program, const SavedTensor& saved) {
  int scope = program.ops()[saved.written].scope;
  while (scope >= 0 && program.scopes()[scope].kind != "layer")
    scope = program.scopes()[scope].parent;
  return scope >= 0 ? scope : -2 - saved.written;
}

/// Recomputes what is listed. The decision to do so is taken back, tensor by tensor, where a chain
/// breaks; each round is judged with the decisions of the one before, until nothing changes.
void choose_recompute(const Program& program, const std::vector<SavedTensor>& saved,
                      const Reruns& reruns, const Policy& policy, Choice& choice) {
  for (const SavedTensor& item : saved) {
    const execution::TensorInfo& info = info_of(program, item);
    if (!listed(policy.recompute, info.module)) continue;
    const int id = item.tensor.id;
    const bool small = movable_bytes(info, policy.min_tensor_bytes) == 0;
    choice.reasons[id] = small ? Reason::small : Reason::asked;
    if (!small) choice.decisions[id] = Decision::recompute;
  }
  const std::vector<char> present(program.tensors().size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (const SavedTensor& item : saved) {
      const int id = item.tensor.id;
      if (choice.decisions[id] != Decision::recompute ||
          reruns.chain(item.tensor, item.first_backward, choice.decisions, present))
        continue;
      choice.decisions[id] = Decision::keep;
      choice.reasons[id] = Reason::no_rerun;
      changed = true;
    }
  }
}

/// Takes items off the list, from the one that backward needs first, while they fit into
/// keep_bytes.
void keep_some(std::vector<Item>& items, const Policy& policy, std::size_t sections,
               const std::vector<SavedTensor>& saved, Choice& choice) {
  for (std::size_t s = 0; s < sections; ++s) {
    auto left = static_cast<std::size_t>(policy.keep_bytes);
    for (std::size_t i = items.size(); i-- > 0;) {
      Item& item = items[i];
      if (item.section != static_cast<int>(s)) continue;
      if (item.bytes > left) break;
      left -= item.bytes;
      for (const int c : item.saved) choice.reasons[saved[c].tensor.id] = Reason::pipeline_delta;
      item.bytes = 0;
    }
  }
}

void choose_offload(const Program& program, const std::vector<SavedTensor>& saved,
                    const Policy& policy, Choice& choice) {
  std::vector<Item> items = find_items(program, saved, policy.offload, policy.min_tensor_bytes);
  const auto id_of = [&](int c) { return static_cast<std::size_t>(saved[c].tensor.id); };
  std::erase_if(items, [](const Item& item) { return item.name < 0; });
  for (Item& item : items) {
    // What is computed again does not move; the rest of its item may.
    std::erase_if(item.saved,
                  [&](int c) { return choice.decisions[id_of(c)] == Decision::recompute; });
    item.bytes = 0;
    for (const int c : item.saved)
      item.bytes += movable_bytes(program.tensors()[id_of(c)], policy.min_tensor_bytes);
    for (const int c : item.saved)
      if (movable_bytes(program.tensors()[id_of(c)], policy.min_tensor_bytes) == 0)
        choice.reasons[id_of(c)] = Reason::small;
  }
  std::erase_if(items, [](const Item& item) { return item.bytes == 0; });
  keep_some(items, policy, program.sections().size(), saved, choice);
  std::map<std::pair<int, int>, double> left;  // by section and name
  for (const Item& item : items)
    left[{item.section, item.name}] += policy.fraction * static_cast<double>(item.bytes);
  for (const Item& item : items) {
    double& room = left[{item.section, item.name}];
    const auto bytes = static_cast<double>(item.bytes);
    const bool fits = bytes <= room;
    room = fits ? room - bytes : -1;  // the first that does not fit ends its name's turn
    for (const int c : item.saved) {
      if (item.bytes == 0) continue;
      if (movable_bytes(program.tensors()[id_of(c)], policy.min_tensor_bytes) == 0) continue;
      const bool no_rerun = choice.reasons[id_of(c)] == Reason::no_rerun;
      if (fits) choice.decisions[id_of(c)] = Decision::offload;
      if (!fits)
        choice.reasons[id_of(c)] = Reason::fraction;
      else if (!no_rerun)
        choice.reasons[id_of(c)] = Reason::asked;
    }
  }
}

}  // namespace

std::vector<Item> find_items(const Program& program, const std::vector<SavedTensor>& saved,
                             const std::vector<ModuleName>& names, std::size_t min_bytes) {
  std::vector<Item> items;
  std::map<std::pair<int, int>, std::size_t> joined;  // by name and layer
  for (std::size_t c = 0; c < saved.size(); ++c) {
    const execution::TensorInfo& info = info_of(program, saved[c]);
    int found = -1;
    for (std::size_t n = 0; n < names.size() && found < 0; ++n)
      if (names[n].covers(info.module)) found = static_cast<int>(n);
    const bool alias = found >= 0 && names[found].modules.size() > 1;
    std::size_t at = items.size();
    if (alias) at = joined.emplace(std::pair(found, home(program, saved[c])), at).first->second;
    if (at == items.size()) items.push_back({{}, saved[c].section, 0, found});
    items[at].saved.push_back(static_cast<int>(c));
    items[at].bytes += movable_bytes(info, min_bytes);
  }
  return items;
}

Choice choose_manual(const Program& program, const std::vector<SavedTensor>& saved,
                     const Reruns& reruns, const Policy& policy) {
  Choice choice{std::vector<Decision>(program.tensors().size(), Decision::keep),
                std::vector<Reason>(program.tensors().size(), Reason::not_asked)};
  choose_recompute(program, saved, reruns, policy, choice);
  if (policy.kind == Policy::Kind::manual) choose_offload(program, saved, policy, choice);
  for (const SavedTensor& item : saved) {
    const execution::TensorInfo& info = info_of(program, item);
    if (choice.reasons[item.tensor.id] != Reason::no_rerun) continue;
    if (policy.kind == Policy::Kind::manual && listed(policy.offload, info.module)) continue;
    execution::throw_usage(
        "recompute.modules: {} ({}) cannot be computed again from what is there in backward; "
        "offload.modules may list it",
        info.module, info.name);
  }
  return choice;
}

}  // namespace stowage::offload
