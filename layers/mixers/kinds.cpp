// The table of kinds, as decks and layers see it. Compiled with the rows of decks, as *_kind.cpp.
#include "layers/mixers/kinds.hpp"

#include <algorithm>

#include "execution/error.hpp"

namespace stowage::layers {

std::vector<const Kind*>& detail::registered_kinds() {
#define STOWAGE_ROW(kind) &kinds::kind,
  static std::vector<const Kind*> all = {STOWAGE_KINDS(STOWAGE_ROW)};
#undef STOWAGE_ROW
  return all;
}

const std::vector<const Kind*>& all_kinds() { return detail::registered_kinds(); }

const Kind& kind_of(const ModelConfig& model, char letter) {
  const auto found = std::ranges::find(all_kinds(), letter, &Kind::letter);
  if (found != all_kinds().end()) return **found;
  std::string letters;
  for (const char one : inputs::layer_letters()) letters += {one, ' '};
  execution::throw_usage("model.pattern = \"{}\": letter '{}' is not one of {}|", model.pattern,
                         letter, letters);
}

}  // namespace stowage::layers

namespace stowage::inputs {

std::vector<const LayerKind*> layer_kinds() {
  return {layers::all_kinds().begin(), layers::all_kinds().end()};
}

}  // namespace stowage::inputs
