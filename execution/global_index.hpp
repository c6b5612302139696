#pragma once

#include <algorithm>
#include <cstdint>

#include "execution/parallel_for.hpp"

namespace stowage::execution {

/// Which element of a whole tensor each element of a rank's part of it is, both in row-major order.
/// Along each dimension the part has some ranges of the whole, one behind the other. A plain struct
/// of fixed size: kernels take it by value.
struct GlobalIndex {
  static constexpr int kDimensions = 4;
  static constexpr int kRanges = 6;

  struct Dimension {
    std::int64_t local = 1;   ///< extent of the part
    std::int64_t global = 1;  ///< extent of the whole
    int ranges = 0;           ///< 0: all of it
    std::int64_t begin[kRanges] = {};
    std::int64_t length[kRanges] = {};
  };

  int dimensions = 0;  ///< 0: the part is the whole
  Dimension dimension[kDimensions];
  std::int64_t first = 0;  ///< element of the part that index 0 means: shards begin behind it

  STOWAGE_PORTABLE std::int64_t operator()(std::int64_t index) const {
    std::int64_t rest = index + first, global = 0, stride = 1;
    for (int d = dimensions; d-- > 0;) {
      const Dimension& at = dimension[d];
      global += global_coordinate(at, rest % at.local) * stride;
      rest /= at.local;
      stride *= at.global;
    }
    return dimensions == 0 ? rest : global;
  }

  /// Elements from `index` on that lie one behind the other in the whole as in the part; one that
  /// has no end in sight counts up to the end of the part.
  std::int64_t run(std::int64_t index) const {
    std::int64_t stride = 1;
    for (int d = dimensions; d-- > 0;) {
      const Dimension& at = dimension[d];
      if (at.ranges > 0) {
        std::int64_t local = (index + first) / stride % at.local;
        int r = 0;
        while (r + 1 < at.ranges && local >= at.length[r]) local -= at.length[r++];
        return (at.length[r] - local) * stride - (index + first) % stride;
      }
      stride *= at.local;
    }
    return stride - (index + first) % stride;
  }

  /// Calls body(local, global, count) for the runs of the elements [begin, end) of the part that
  /// lie one behind the other in the whole.
  template <class Body>
  void for_each_run(std::int64_t begin, std::int64_t end, Body&& body) const {
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t count = dimensions == 0 ? end - at : std::min(run(at), end - at);
      body(at, (*this)(at), count);
      at += count;
    }
  }

 private:
  STOWAGE_PORTABLE static std::int64_t global_coordinate(const Dimension& at, std::int64_t local) {
    for (int r = 0; r < at.ranges; ++r) {
      if (local < at.length[r]) return at.begin[r] + local;
      local -= at.length[r];
    }
    return local;
  }
};

}  // namespace stowage::execution
