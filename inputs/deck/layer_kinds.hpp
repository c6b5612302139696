#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stowage::inputs {

/// A name of offload.modules: tensors that a layer saves for backward.
struct Module {
  std::string_view name;
  std::string_view tensors;
  std::string_view again_from = {};              ///< what they are computed again from
  std::span<const std::string_view> parts = {};  ///< stands for these names, as one item
};

/// What decks know of a kind of layer: its letter in model.pattern, and what holds for it whatever
/// its sizes.
struct LayerKind {
  char letter;
  std::string_view name;              ///< in messages and help
  std::string_view scope;             ///< of its ops, which graphs can be made of
  std::string_view inner_scope = {};  ///< of a part of them; empty: none
  /// Carries a state from each token to the next, also past a document's end.
  bool recurrent = false;
  /// Has experts, which ranks of the axes tensor and expert share.
  bool experts = false;
  std::string_view norm_module;     ///< of the saved layer input
  std::string_view input_module;    ///< of the saved normed input
  std::span<const Module> modules;  ///< of what its mixer saves

  bool in(std::string_view pattern) const { return pattern.find(letter) != pattern.npos; }
};

/// All kinds, in the order in which help and messages list them. Defined where the rows are,
/// layers/mixers/kinds.cpp.
std::vector<const LayerKind*> layer_kinds();

/// Their letters: "M*-EG".
std::string layer_letters();

/// "M Mamba-2, * attention, - dense MLP, E mixture of experts".
std::string layer_kinds_text();

/// Names of the recurrent kinds that a pattern has, such as "Mamba-2"; empty: none.
std::string recurrent_layers(std::string_view pattern);

/// Whether a pattern has a layer of experts.
bool has_experts(std::string_view pattern);

/// The names of all saved tensors: layer inputs, normed inputs, then what each kind's mixer saves.
std::vector<Module> saved_modules();

/// The scopes that graphs can be made of: those of kinds by the alphabet, then whole layers.
std::vector<std::string_view> graph_scopes();

}  // namespace stowage::inputs
