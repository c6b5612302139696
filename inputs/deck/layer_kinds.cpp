#include "inputs/deck/layer_kinds.hpp"

#include <array>

namespace stowage::inputs {

std::span<const LayerKind> layer_kinds() {
  static constexpr std::array<LayerKind, 4> kKinds = {{
      {.letter = 'M', .name = "Mamba-2", .recurrent = true},
      {.letter = '*', .name = "attention", .recurrent = false},
      {.letter = '-', .name = "dense MLP", .recurrent = false},
      {.letter = 'E', .name = "mixture of experts", .recurrent = false},
  }};
  return kKinds;
}

std::string layer_letters() {
  std::string letters;
  for (const LayerKind& kind : layer_kinds()) letters += kind.letter;
  return letters;
}

std::string layer_kinds_text() {
  std::string text;
  for (const LayerKind& kind : layer_kinds()) {
    if (!text.empty()) text += ", ";
    text += kind.letter;
    text += ' ';
    text += kind.name;
  }
  return text;
}

std::string recurrent_layers(std::string_view pattern, std::span<const LayerKind> kinds) {
  std::string names;
  for (const LayerKind& kind : kinds) {
    if (!kind.recurrent || pattern.find(kind.letter) == std::string_view::npos) continue;
    if (!names.empty()) names += " and ";
    names += kind.name;
  }
  return names;
}

}  // namespace stowage::inputs
