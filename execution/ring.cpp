#include "execution/ring.hpp"

#include "execution/error.hpp"
#include "execution/plan.hpp"

namespace stowage::execution {

Ring::Ring(Backend& backend, const Program& program, int slots)
    : program_(program), slots_(slots), entries_(program.tensors().size()) {
  STOWAGE_ASSERT(slots > 0, "a ring of {} slots", slots);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const TensorInfo& info = program.tensors()[i];
    if (info.lifetime != Lifetime::input && info.lifetime != Lifetime::output) continue;
    entries_[i] = {set_bytes_, info.bytes()};
    set_bytes_ += align_up(info.bytes());
  }
  arena_ = backend.allocate(MemoryKind::host, set_bytes_ * static_cast<std::size_t>(slots));
}

bool Ring::holds(Tensor tensor) const {
  return tensor && tensor.id < static_cast<int>(entries_.size()) && entries_[tensor.id].bytes > 0;
}

std::span<std::byte> Ring::slot(Tensor tensor, long step) const {
  STOWAGE_ASSERT(holds(tensor), "{} is neither an input nor an output of program {}",
                 program_.info(tensor).name, program_.name());
  const Entry& entry = entries_[tensor.id];
  const auto set = static_cast<std::size_t>(step % slots_);
  return {arena_->data() + set * set_bytes_ + entry.offset, entry.bytes};
}

}  // namespace stowage::execution
