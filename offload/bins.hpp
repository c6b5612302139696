#pragma once

#include <string>
#include <vector>

#include "execution/plan.hpp"
#include "offload/segments.hpp"

namespace stowage::offload {

/// The steps of a plan, sorted into what is launched as graphs and what is issued between them.
struct Bins {
  /// By step: 2g + 1 for graph g, 2g for what comes between graphs g - 1 and g. Steps of a bin keep
  /// their order.
  std::vector<int> of;
  std::vector<std::string> graphs;  ///< their names

  static bool is_graph(int bin) { return bin % 2 == 1; }
};

/// See choose_segments for which step goes where.
Bins sort_into_bins(const execution::Program& program, const execution::Plan& plan,
                    const GraphOptions& options);

}  // namespace stowage::offload
