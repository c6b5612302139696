#pragma once

#include <vector>

#include "execution/program.hpp"
#include "offload/lifetimes.hpp"

namespace stowage::offload {

/// Live ranges of a region, in which what an exchange uses keeps its bytes up to the first compute
/// that needs the exchange to have ended: compute between them that got these bytes would wait for
/// it, beside which it is meant to run. No range goes on where more than `most` bytes would be live
/// then.
std::vector<LiveRange> collective_lifetimes(const execution::Program& program,
                                            const execution::Plan& plan,
                                            std::vector<LiveRange> ranges, execution::Region region,
                                            std::size_t alignment, std::size_t most);

}  // namespace stowage::offload
