#include "kernels/documents/segment_documents.hpp"

#include "kernels/cost.hpp"
#include "kernels/documents/start_in_segment.hpp"
#include "kernels/operands.hpp"

namespace stowage::kernels {

using execution::Dtype;
using execution::View;

void segment_documents(execution::Queue& queue, const View& cu_seqlens, std::int64_t first,
                       std::int64_t tokens, const View& part) {
  const Operands operands("segment_documents");
  operands.rank(cu_seqlens, "cu_seqlens", 1);
  operands.check(cu_seqlens, "cu_seqlens", Dtype::int32, {cu_seqlens.extent(0)});
  operands.same(part, "part", cu_seqlens);
  operands.require(first >= 0 && tokens >= 0, "a part of less than no tokens");
  execution::parallel_for(
      queue, cu_seqlens.extent(0),
      detail::StartInSegment{cu_seqlens.as<const std::int32_t>(), static_cast<std::int32_t>(first),
                             static_cast<std::int32_t>(tokens), part.as<std::int32_t>()});
}

execution::Cost segment_documents_cost(std::int64_t capacity) {
  return {0, bytes(2 * (capacity + 1), Dtype::int32)};
}

}  // namespace stowage::kernels
