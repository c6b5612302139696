#include "kernels/grouped_mlp/grouped_mlp_parts.hpp"

namespace stowage::kernels {

namespace {

const auto kReference = [](const auto& op, const auto& operands) {
  op.reference(operands);
  return 0;
};

}  // namespace

template <class S>
void GroupedFc1Forward::reference(const Operands<Pointers<S>>& o) const {
  detail::each_part<S>(*this, o, kReference);
}

template <class S>
void GroupedFc2BackwardInput::reference(const Operands<Pointers<S>>& o) const {
  detail::each_part<S>(*this, o, kReference);
}

STOWAGE_REFERENCES(GroupedFc1Forward)
STOWAGE_REFERENCES(GroupedFc2BackwardInput)

}  // namespace stowage::kernels
