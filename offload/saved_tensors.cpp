#include "offload/saved_tensors.hpp"

#include <algorithm>

namespace stowage::offload {

using execution::Access;
using execution::Lifetime;
using execution::Op;
using execution::Program;

std::vector<char> backward_ops(const Program& program) {
  const auto& scopes = program.scopes();
  std::vector<char> backward(scopes.size(), 0);
  for (std::size_t i = 0; i < scopes.size(); ++i)  // a parent comes before its children
    backward[i] = scopes[i].backward || (scopes[i].parent >= 0 && backward[scopes[i].parent]);
  std::vector<char> result;
  for (const Op& op : program.ops()) result.push_back(backward[op.scope]);
  return result;
}

std::vector<SavedTensor> find_saved_tensors(const Program& program) {
  struct Seen {
    SavedTensor saved{{}, -1, -1, -1, -1};
    bool fixed = false;  ///< used in two sections, or changed by backward
  };
  std::vector<Seen> seen(program.tensors().size());
  const std::vector<char> backward = backward_ops(program);
  for (std::size_t s = 0; s < program.sections().size(); ++s)
    for (int i = program.sections()[s].begin; i < program.sections()[s].end; ++i) {
      const Op& op = program.ops()[i];
      if (op.only_rerun) continue;
      for (const execution::Use& use : op.uses) {
        Seen& at = seen[use.tensor.id];
        SavedTensor& saved = at.saved;
        const int section = static_cast<int>(s);
        if (saved.section < 0) saved = {use.tensor, section, -1, -1, -1};
        if (saved.section != section) at.fixed = true;
        if (!backward[i]) {
          saved.last_forward = i;
          if (use.access != Access::read) saved.written = i;
          if (saved.first_backward >= 0) at.fixed = true;
        } else {
          if (use.access != Access::read) at.fixed = true;
          if (saved.first_backward < 0) saved.first_backward = i;
        }
      }
    }
  std::vector<SavedTensor> result;
  for (const Seen& at : seen) {
    const SavedTensor& saved = at.saved;
    if (at.fixed || saved.written < 0 || saved.first_backward < 0) continue;
    const execution::TensorInfo& info = program.info(saved.tensor);
    if (info.lifetime == Lifetime::saved && !info.module.empty()) result.push_back(saved);
  }
  std::stable_sort(result.begin(), result.end(), [](const SavedTensor& a, const SavedTensor& b) {
    return a.written < b.written;
  });
  return result;
}

std::size_t movable_bytes(const execution::TensorInfo& info, std::size_t min_bytes) {
  std::size_t bytes = 0;
  for (const execution::BufferInfo& buffer : info.buffers)
    if (buffer.bytes() >= min_bytes) bytes += buffer.bytes();
  return bytes;
}

}  // namespace stowage::offload
