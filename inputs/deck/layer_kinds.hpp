#pragma once

#include <span>
#include <string>
#include <string_view>

namespace stowage::inputs {

/// A kind of layer: its letter in model.pattern, and what holds for it whatever its sizes.
struct LayerKind {
  char letter;
  std::string_view name;  ///< in messages and help
  bool recurrent;  ///< carries a state from each token to the next, also past a document's end
};

/// All kinds, in the order in which help and messages list them.
std::span<const LayerKind> layer_kinds();

/// Their letters: "M*-E".
std::string layer_letters();

/// "M Mamba-2, * attention, - dense MLP, E mixture of experts".
std::string layer_kinds_text();

/// Names of the recurrent kinds among `kinds` that a pattern has, such as "Mamba-2"; empty: none.
std::string recurrent_layers(std::string_view pattern,
                             std::span<const LayerKind> kinds = layer_kinds());

}  // namespace stowage::inputs
