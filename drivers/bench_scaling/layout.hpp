#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/groups/grid.hpp"

namespace stowage::drivers {

/// The layout of a point of a scaling curve: the extents of the grid, stages of a rank, and whether
/// optimizer states are cut.
struct CurveLayout {
  parallel::GridShape shape;
  int virtual_stages = 1;  ///< of each rank of a pipeline; interleaved if there are several
  bool zero = false;

  int ranks() const { return shape.ranks(); }
  /// "d2", "p2_v3_d4_zero": what is above 1 in the grid's order, "d1" if there is none.
  std::string name() const;
  /// What a deck says of it: "parallel.tensor=2", …
  std::vector<std::string> overrides() const;
  friend bool operator==(const CurveLayout& a, const CurveLayout& b) {
    return a.shape.extent == b.shape.extent && a.virtual_stages == b.virtual_stages &&
           a.zero == b.zero;
  }
};

/// Layouts from a list such as "d=1, d=2, t=2 d=2, p=2 v=2, d=2 zero": axes t, c, e, p and d with
/// their extents and v with the stages of a rank, 1 where they are left out, and `zero` for ZeRO-1,
/// with blanks between them or, where a list must be one word, colons: "d=1,t=2:d=2". Sorted by
/// ranks, else as given. Of layouts without v, the deck says how many stages a rank has.
/// @param most ranks of the job
/// @throws Error (exit 2) for a word that is none of these, an axis or a layout given twice, stages
/// without a pipeline, or more ranks than there are
std::vector<CurveLayout> parse_layouts(std::string_view list, int most);

}  // namespace stowage::drivers
