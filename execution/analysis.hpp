#pragma once

#include <vector>

#include "execution/program.hpp"

namespace stowage::execution {

/// The first and the last op that use a tensor, as indices into Program::ops(); -1: none does.
///
/// For planners and forecasts. The verifier keeps its own: it must not trust theirs.
struct UseSpan {
  int first = -1;
  int last = -1;
  Access first_access = Access::read;  ///< of the first op; of several uses there, the first one's
};

/// By tensor, among the ops for which `counts(index, op)` holds.
template <class Counts>
std::vector<UseSpan> use_spans(const Program& program, Counts&& counts) {
  std::vector<UseSpan> all(program.tensors().size());
  for (int i = 0; i < static_cast<int>(program.ops().size()); ++i) {
    const Op& op = program.ops()[i];
    if (!counts(i, op)) continue;
    for (const Use& use : op.uses) {
      UseSpan& span = all[use.tensor.id];
      if (span.first < 0) span.first = i, span.first_access = use.access;
      span.last = i;
    }
  }
  return all;
}

/// By tensor, among all ops, also those that only reruns issue.
inline std::vector<UseSpan> use_spans(const Program& program) {
  return use_spans(program, [](int, const Op&) { return true; });
}

}  // namespace stowage::execution
