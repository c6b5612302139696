#pragma once

#include <vector>

#include "execution/program.hpp"
#include "offload/policy.hpp"

namespace stowage::forecast {

/// Every module name of a program whose tensors travel, in the order of forward.
std::vector<offload::ModuleName> all_modules(const execution::Program& program);

/// Keeps everything.
offload::Policy no_policy(const offload::Policy& base);

/// Moves everything that can leave, in time or not.
offload::Policy full_offload(const offload::Policy& base, const execution::Program& program);

/// Computes again whatever can be, and moves nothing.
offload::Policy full_recompute(const offload::Policy& base, const execution::Program& program);

/// Moves a fraction of these modules. @param keep_exposed what could not come back in time stays
offload::Policy manual_policy(const offload::Policy& base, std::vector<offload::ModuleName> offload,
                              double fraction, bool keep_exposed);

}  // namespace stowage::forecast
