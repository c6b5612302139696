#include "kernels/buffer_of.hpp"

namespace stowage::kernels {

using execution::View;

void check(const Operands& operands, const Spec& spec, const BufferOf<View>& operand) {
  const View& whole = operand.whole;
  if (!whole) return check(operands, spec, whole);
  const auto index = static_cast<std::size_t>(operand.buffer);
  operands.require(index < whole.info->buffers.size(), "an operand has too few buffers");
  execution::TensorInfo alone = *whole.info;
  alone.buffers = {whole.buffer(index)};
  check(operands, spec,
        RowsOf<View>({whole.data.subspan(index, 1), &alone}, operand.rows != execution::Range{}));
}

}  // namespace stowage::kernels
