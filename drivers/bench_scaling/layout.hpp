#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/grid.hpp"

namespace stowage::drivers {

/// One way to share a step: the extents of the grid, and whether optimizer states are cut.
struct Layout {
  parallel::GridShape shape;
  bool zero = false;

  int ranks() const { return shape.ranks(); }
  /// "d2", "t2_d4_zero": axes above 1 in the grid's order, "d1" if there is none.
  std::string name() const;
  /// What a deck says of it: "parallel.tensor=2", …
  std::vector<std::string> overrides() const;
  friend bool operator==(const Layout& a, const Layout& b) {
    return a.shape.extent == b.shape.extent && a.zero == b.zero;
  }
};

/// Layouts from a list such as "d=1, d=2, t=2 d=2, d=2 zero": axes t, c, e, p and d with their
/// extents, 1 where they are left out, and `zero` for ZeRO-1, with blanks between them or, where a
/// list must be one word, colons: "d=1,t=2:d=2". Sorted by ranks, else as given.
/// @param most ranks of the job
/// @throws Error (exit 2) for a word that is none of these, an axis or a layout given twice, or
/// more ranks than there are
std::vector<Layout> parse_layouts(std::string_view list, int most);

}  // namespace stowage::drivers
