#pragma once

#include <vector>

#include "offload/cargo.hpp"
#include "offload/policy.hpp"
#include "offload/rates.hpp"
#include "offload/reruns.hpp"

namespace stowage::offload {

/// Keeps, of the tensors to be offloaded, those that could not come back in time, or whose bytes
/// would be free for no moment: tried one after the other in the order in which they leave, each
/// beside those taken before. So the last ones of forward stay, whose stay is shortest.
void keep_unhidden(const execution::Program& program, const std::vector<Cargo>& cargo,
                   const Reruns& reruns, const Policy& policy, const Rates& rates, Choice& choice);

}  // namespace stowage::offload
