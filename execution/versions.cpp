#include "execution/versions.hpp"

#include <algorithm>

namespace stowage::execution {

Versions::Versions(const Program& program)
    : values_(program.ops().size()), writes_(program.tensors().size(), 0) {
  for (const Op& op : program.ops()) uses_.push_back(op.uses.size());
  for (const Section& section : program.sections())
    for (int period = 0; period < std::min(section.repeat, 2); ++period)
      for (int i = section.begin; i < section.end; ++i) {
        const Op& op = program.ops()[static_cast<std::size_t>(i)];
        std::vector<Value>& values = values_[static_cast<std::size_t>(i)];
        for (const Use& use : op.uses) {
          const std::int64_t now = writes_[static_cast<std::size_t>(use.tensor.id)];
          const bool changes = use.access != Access::read && !op.only_rerun;
          values.push_back({now, now + (changes ? 1 : 0)});
        }
        // All uses of an op see what was there before it.
        const std::size_t first = values.size() - op.uses.size();
        for (std::size_t u = 0; u < op.uses.size(); ++u)
          writes_[static_cast<std::size_t>(op.uses[u].tensor.id)] = std::max(
              writes_[static_cast<std::size_t>(op.uses[u].tensor.id)], values[first + u].written);
      }
}

const Versions::Value& Versions::value(int op, std::size_t use, int repetition) const {
  const auto at = static_cast<std::size_t>(op);
  const std::size_t periods = values_[at].size() / uses_[at];
  const std::size_t period = std::min(static_cast<std::size_t>(repetition), periods - 1);
  return values_[at][period * uses_[at] + use];
}

std::int64_t Versions::read(int op, std::size_t use, int repetition) const {
  return value(op, use, repetition).read;
}

std::int64_t Versions::written(int op, std::size_t use, int repetition) const {
  return value(op, use, repetition).written;
}

}  // namespace stowage::execution
