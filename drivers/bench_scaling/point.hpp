#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "drivers/bench_scaling/layout.hpp"
#include "inputs/deck/deck.hpp"

namespace stowage::drivers {

/// What stowage_bench_scaling is asked for besides the deck.
struct ScalingOptions {
  std::vector<Layout> layouts;
  std::vector<std::string> scales;  ///< some of "strong", "weak"
  std::vector<std::string> modes;   ///< some of "off", "scopes", "step"
  std::int64_t samples = 20;        ///< timed steps of a point
  std::int64_t time_limit_s = 0;    ///< no step is issued later, from the start on; 0: no limit
};

/// One point of a curve: a batch on a layout, in one graph mode.
struct ScalingPoint {
  std::string scale;  ///< "strong": the deck's batch; "weak": it grows with the ranks
  Layout layout;
  std::string mode;
  inputs::Deck deck;  ///< what the layout's ranks run

  /// "strong/d2_zero/step": where its samples lie.
  std::string name() const { return scale + "/" + layout.name() + "/" + mode; }
};

/// The deck without its own layout, which a point brings.
inputs::Deck without_layout(const inputs::Deck& deck);

/// One of them. @param batch of all its ranks
ScalingPoint scaling_point(const inputs::Deck& deck, const std::string& scale, const Layout& layout,
                           const std::string& mode, std::int64_t batch);

/// All points, those with the fewest ranks first: what the others of their scale and mode stand
/// beside. @throws Error (exit 2) where a layout or mode does not fit the deck
std::vector<ScalingPoint> scaling_points(const inputs::Deck& deck, const ScalingOptions& options);

}  // namespace stowage::drivers
