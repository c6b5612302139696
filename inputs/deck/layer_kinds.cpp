#include "inputs/deck/layer_kinds.hpp"

#include <algorithm>

#include "inputs/deck/mtp_module.hpp"

namespace stowage::inputs {

std::string layer_letters() {
  std::string letters;
  for (const LayerKind* kind : layer_kinds()) letters += kind->letter;
  return letters;
}

std::string layer_kinds_text() {
  std::string text;
  for (const LayerKind* kind : layer_kinds()) {
    if (!text.empty()) text += ", ";
    text += kind->letter;
    text += ' ';
    text += kind->name;
  }
  return text;
}

std::string recurrent_layers(std::string_view pattern) {
  std::string names;
  for (const LayerKind* kind : layer_kinds()) {
    if (!kind->recurrent || !kind->in(pattern)) continue;
    if (!names.empty()) names += " and ";
    names += kind->name;
  }
  return names;
}

bool has_experts(std::string_view pattern) {
  return std::ranges::any_of(
      layer_kinds(), [&](const LayerKind* kind) { return kind->experts && kind->in(pattern); });
}

std::vector<Module> saved_modules() {
  std::vector<const LayerKind*> kinds = layer_kinds();
  std::ranges::stable_partition(kinds, [](const LayerKind* kind) { return !kind->recurrent; });
  std::vector<Module> all;
  const auto add = [&](const Module& one) {  // kinds may share a name
    if (std::ranges::find(all, one.name, &Module::name) == all.end()) all.push_back(one);
  };
  for (const LayerKind* kind : kinds) add({kind->norm_module, "layer input x (n, D), rstd (n)"});
  add(kMtpModule);
  for (const LayerKind* kind : kinds) add({kind->input_module, "normed input (n, D)", "x"});
  for (const LayerKind* kind : kinds) std::ranges::for_each(kind->modules, add);
  return all;
}

std::vector<std::string_view> graph_scopes() {
  std::vector<const LayerKind*> kinds = layer_kinds();
  std::ranges::sort(kinds, {}, &LayerKind::scope);
  std::vector<std::string_view> scopes;
  for (const LayerKind* kind : kinds) {
    if (!kind->inner_scope.empty()) scopes.push_back(kind->inner_scope);
    scopes.push_back(kind->scope);
  }
  scopes.push_back("layer");
  return scopes;
}

}  // namespace stowage::inputs
