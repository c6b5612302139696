#pragma once

#include <memory>
#include <string>

#include "execution/plan.hpp"

namespace stowage::ctest {

class Reference;

/// Judges plans of a small program without the verifier's means.
///
/// The order of two executions is written out as a graph of all steps and closed transitively;
/// every two steps that touch the same bytes, one of them writing, must be ordered. Then the plan
/// is executed on values that are hashes of how they were made: every op must find the operands
/// that it finds when the program is executed in its own order.
class Oracle {
 public:
  explicit Oracle(const execution::Program& program);
  ~Oracle();

  /// @return what is wrong with a plan first; empty: nothing
  std::string judge(const execution::Plan& plan) const;

 private:
  const execution::Program& program_;
  std::unique_ptr<const Reference> reference_;
};

}  // namespace stowage::ctest
