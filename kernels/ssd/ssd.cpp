#include "kernels/ssd/ssd.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/machine.hpp"
#include "kernels/ssd/ssd_chunks.hpp"
#include "kernels/ssd/ssd_layout.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;

namespace {

// With one chunk length for every kernel, or a larger one would seem to do more work.
constexpr std::int64_t kCostChunk = 128;

std::size_t bytes_of(std::int64_t elements, Dtype storage) {
  return static_cast<std::size_t>(elements) *
         execution::size_bytes(execution::accumulation(storage));
}

}  // namespace

std::string SsdShape::fault() const {
  if (groups <= 0 || heads % groups != 0) return "heads is not a multiple of groups";
  if (chunk <= 0) return "chunk is not positive";
  return dt_min <= dt_max ? "" : "dt_min is above dt_max";
}

bool SsdShape::on_tensor_cores(Dtype storage) const {
  return storage == Dtype::bf16 && ssd::is_served(heads, head_dim, groups, state) &&
         machine().wgmma();
}

std::size_t SsdForward::workspace_bytes() const {
  const detail::SsdSizes sizes(shape, tokens);
  const std::size_t host = bytes_of(detail::SsdWorkspace<float>::forward_elements(sizes), storage);
  return std::max(host, detail::ssd_cuda_forward_bytes(shape, tokens, storage));
}

Cost SsdForward::cost() const {
  const std::int64_t inner = shape.inner(), shared = shape.shared();
  const double flops = 2.0 * static_cast<double>(kCostChunk * (inner + shared)) +
                       4.0 * static_cast<double>(inner * shape.state);
  return {flops * static_cast<double>(tokens),
          bytes(tokens * (2 * inner + 2 * shared + shape.heads), storage) +
              bytes(3 * shape.heads, storage) + bytes(tokens, Dtype::int32)};
}

std::size_t SsdBackward::workspace_bytes() const {
  const detail::SsdSizes sizes(shape, tokens);
  const std::size_t host = bytes_of(detail::SsdWorkspace<float>::backward_elements(sizes), storage);
  return std::max(host, detail::ssd_cuda_backward_bytes(shape, tokens, storage));
}

// Including the recomputation of the states (2 N P per head).
Cost SsdBackward::cost() const {
  const std::int64_t inner = shape.inner(), shared = shape.shared();
  const double flops = static_cast<double>(kCostChunk * (4 * inner + 6 * shared)) +
                       10.0 * static_cast<double>(inner * shape.state);
  return {flops * static_cast<double>(tokens),
          bytes(tokens * (3 * inner + 4 * shared + 2 * shape.heads), storage) +
              bytes(3 * shape.heads, storage) +
              bytes(3 * shape.heads, execution::accumulation(storage)) +
              bytes(tokens, Dtype::int32)};
}

STOWAGE_OPERATOR_RUN(SsdForward)
STOWAGE_OPERATOR_RUN(SsdBackward)

}  // namespace stowage::kernels
