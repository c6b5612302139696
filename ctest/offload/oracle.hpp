#pragma once

#include <string>

#include "execution/plan.hpp"

namespace stowage::ctest {

/// Judges a plan of a small program without the verifier's means.
///
/// The order of two executions is written out as a graph of all steps and closed transitively;
/// every two steps that touch the same bytes, one of them writing, must be ordered. Then the plan
/// is executed on values that are hashes of how they were made: every op must find the operands
/// that it finds when the program is executed in its own order.
///
/// @return what is wrong first; empty: nothing
std::string oracle(const execution::Program& program, const execution::Plan& plan);

}  // namespace stowage::ctest
