#pragma once

#include "layers/mixers/layer.hpp"
#include "layers/recording/kind.hpp"

/// Every kind of layer, in the order of help and messages: `mamba` is the row kinds::mamba of
/// mamba_kind.cpp, which programs that only read decks have too, and make_mamba() of mamba.cpp.
#define STOWAGE_KINDS(Each) Each(mamba) Each(attention) Each(mlp) Each(moe) Each(gated_delta)

namespace stowage::layers {

#define STOWAGE_DECLARE_KIND(kind) \
  namespace kinds {                \
  extern const Kind kind;          \
  }                                \
  std::unique_ptr<Mixer> make_##kind(const MixerPlace& place);
STOWAGE_KINDS(STOWAGE_DECLARE_KIND)  // NOLINT(readability-identifier-naming): as in the list
#undef STOWAGE_DECLARE_KIND

/// One more kind, of a test.
bool add_kind(const Kind& kind, MakeMixer make);

namespace detail {
std::vector<const Kind*>& registered_kinds();
}

}  // namespace stowage::layers
