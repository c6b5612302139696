#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inputs/deck/section.hpp"
#include "offload/policy.hpp"
#include "offload/segments.hpp"

namespace stowage::offload {

/// [offload] and [recompute]: a Policy and parts of GraphOptions as people write them.
struct OffloadConfig {
  Policy::Kind kind = Policy::Kind::none;
  std::vector<std::string> modules;
  double fraction = 1;
  std::int64_t min_tensor_bytes = 1 << 20;
  std::int64_t delta_bytes = 0;  ///< from one pipeline rank to the next
  int max_inflight = -1;
  std::int64_t max_inflight_bytes_d2h = -1, max_inflight_bytes_h2d = -1;
  bool delay_until_graph = false;
  bool keep_exposed = true;
  std::int64_t device_budget_bytes = 0;
  bool reuse_gradient_memory = true;
  std::int64_t host_budget_bytes = -1;
  std::vector<std::string> states;
  double states_fraction = 1;
  std::vector<std::string> recompute;

  /// Whether the planner says how much of the states leaves.
  bool automatic_states() const { return states == std::vector<std::string>{"auto"}; }

  /// @param stage of the pipeline
  Policy policy(int stage) const;
};

/// [graphs] without the capacities of max_packed_seqs.
struct GraphConfig {
  GraphOptions::Mode mode = GraphOptions::Mode::off;
  std::vector<std::string> scopes;
  GraphOptions::Copies copies = GraphOptions::Copies::overlapping;
  int warmup_steps = 0;
};

void check(const OffloadConfig& offload, const inputs::Deck& deck);
void check(const GraphConfig& graphs, const inputs::Deck& deck);

}  // namespace stowage::offload

namespace stowage::inputs {

template <>
std::vector<Row<offload::OffloadConfig>> rows<offload::OffloadConfig>();
template <>
std::vector<Row<offload::GraphConfig>> rows<offload::GraphConfig>();

}  // namespace stowage::inputs
