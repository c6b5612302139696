#pragma once

#include "offload/draft.hpp"

namespace stowage::offload {

/// Keeps, of the tensors to be offloaded, those that could not come back in time, or whose bytes
/// would be free for no moment: tried one after the other in the order in which they leave, each
/// beside those taken before. So the last ones of forward are kept, whose time between uses is
/// shortest.
void keep_exposed(const Drafts& drafts, Choice& choice);

}  // namespace stowage::offload
