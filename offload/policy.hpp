#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "execution/plan.hpp"

namespace stowage::offload {

/// A name of a policy's lists: saved tensors of these modules. Where it stands for several, those
/// of one layer are decided about as one.
struct ModuleName {
  std::string name;
  std::vector<std::string> modules;

  bool covers(const std::string& module) const;
};

/// What a user asks of the planner: the keys of [offload] and [recompute] (docs/reference/deck.md).
struct Policy {
  enum class Kind : unsigned char { none, manual, automatic };

  Kind kind = Kind::none;
  std::vector<ModuleName> offload;    ///< manual: what may leave
  std::vector<ModuleName> recompute;  ///< what is computed again, with any kind
  double fraction = 1;  ///< of the bytes of each name: whole items, earliest first, never above
  std::size_t min_tensor_bytes = std::size_t{1} << 20;  ///< smaller buffers stay
  /// Bytes that stay, in every section: whole items, earliest in backward first, never above.
  std::int64_t keep_bytes = 0;
  execution::CopyCaps caps;
  bool keep_exposed = true;  ///< what could not come back in time stays
  std::int64_t device_budget_bytes =
      0;                             ///< automatic: persistent and transient; 0: only what is free
  std::size_t state_copy_bytes = 0;  ///< of that budget: a copy of the state for checkpoints
  /// Automatic, with a budget: tensors may lie where gradients come later.
  bool reuse_gradient_memory = true;
  std::int64_t host_budget_bytes = -1;  ///< of pinned memory; -1: no cap
  std::size_t home_bytes = 0;           ///< of that budget: what outlives a step there

  /// Whether the host has room for so many bytes of offloaded tensors.
  bool has_host_room(std::int64_t bytes) const {
    return host_budget_bytes < 0 ||
           bytes + static_cast<std::int64_t>(home_bytes) <= host_budget_bytes;
  }
};

/// Why a saved tensor is where it is.
enum class Reason : unsigned char {
  asked,               ///< offloaded or computed again, because it is listed
  not_asked,           ///< kept: no list names it
  small,               ///< kept: all its buffers are below min_tensor_bytes
  fraction,            ///< kept: its name has used up its fraction
  pipeline_delta,      ///< kept: this pipeline rank keeps some bytes
  exposed,             ///< kept: it could not come back in time
  no_rerun,            ///< offloaded: listed to be computed again, which cannot be
  free,                ///< automatic: its copies cost nothing
  in_gradient_memory,  ///< automatic: kept, in memory of gradients that are written later
  budget,              ///< automatic: needed to fit the budget
  not_needed,          ///< automatic: kept, since all fits without moving it
  host_budget          ///< automatic: kept, since the host has no room for it
};

/// "asked", "below min_tensor_bytes", …
std::string_view text(Reason reason);

/// What a message about a policy's device budget says of a copy of the state; "" if there is none.
std::string with_state_copy(const Policy& policy);

/// The outcome of a policy, by tensor id.
struct Choice {
  std::vector<execution::Decision> decisions;
  std::vector<Reason> reasons;
  bool reuse_gradient_memory = true;  ///< false: made for a plan without, whatever the policy says
};

}  // namespace stowage::offload
