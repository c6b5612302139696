#pragma once

#include <memory>

#include "execution/observer.hpp"
#include "execution/program.hpp"

namespace stowage::execution {

/// Marks the issue of every step of a plan as an NVTX range with the op's name, so that a timeline
/// tool can project it onto the kernels. Costs some nanoseconds a step when no tool is attached.
/// Program and plan are needed only during the call.
std::unique_ptr<Observer> make_nvtx_ranges(const Program& program, const Plan& plan);

}  // namespace stowage::execution
