#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "forecast/layouts/layout.hpp"

namespace stowage::drivers {

using forecast::Layout;

/// Layouts from a list such as "d=1, d=2, t=2 d=2, p=2 v=2, d=2 zero": axes t, c, e, p and d with
/// their extents and v with the stages of a rank, 1 where they are left out, and `zero` for ZeRO-1,
/// with blanks between them or, where a list must be one word, colons: "d=1,t=2:d=2". Sorted by
/// ranks, else as given. Of layouts without v, the deck says how many stages a rank has.
/// @param most ranks of the job
/// @throws Error (exit 2) for a word that is none of these, an axis or a layout given twice, stages
/// without a pipeline, or more ranks than there are
std::vector<Layout> parse_layouts(std::string_view list, int most);

}  // namespace stowage::drivers
