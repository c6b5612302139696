#include "kernels/conv_scan/conv_scan.hpp"

#include <algorithm>

#include "kernels/conv_scan/conv_scan_steps.hpp"
#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/ssd/ssd_layout.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;

namespace {

template <class Op>
std::string fault_of(const Op& op) {
  if (!op.conv().fault().empty()) return "conv_weight has neither 2, 3 nor 4 taps";
  return op.shape.fault();
}

const auto kReference = [](const auto& op, const auto& operands) {
  op.reference(operands);
  return 0;
};

}  // namespace

std::size_t detail::conv_scan_rows_bytes(const SsdShape& shape, std::int64_t tokens,
                                         Dtype storage) {
  const auto elements = static_cast<std::size_t>(tokens * shape.channels());
  return (elements * execution::size_bytes(storage) + 1023) / 1024 * 1024;
}

// The scan's gradient of a tile is written by who alone read that tile, after it did: on the host,
// by the tensor-core kernels, and by the simple ones that replace them on other GPUs.
bool detail::conv_scan_in_place(const SsdShape& shape, Dtype storage) {
  return storage == Dtype::fp64 ||
         (storage == Dtype::bf16 &&
          ssd::is_served(shape.heads, shape.head_dim, shape.groups, shape.state));
}

Conv1dForward ConvScanForward::conv() const {
  return {.tokens = tokens, .channels = shape.channels(), .width = conv_width, .storage = storage};
}

std::string ConvScanForward::fault() const { return fault_of(*this); }

template <class S>
void ConvScanForward::reference(const Operands<Pointers<S>>& o) const {
  detail::ConvScanForwardSteps<S>(*this, o).each(kReference);
}

std::size_t ConvScanForward::workspace_bytes() const {
  return (convolved ? 0 : detail::conv_scan_rows_bytes(shape, tokens, storage)) +
         scan().workspace_bytes();
}

Cost ConvScanForward::cost() const {
  const Cost one = conv().cost(), two = scan().cost();
  return {two.flops + one.flops,
          two.bytes + one.bytes - 2 * bytes(tokens * shape.channels(), storage)};
}

Conv1dForward ConvScanBackward::conv() const {
  return {.tokens = tokens, .channels = shape.channels(), .width = conv_width, .storage = storage};
}

SsdBackward ConvScanBackward::scan() const {
  return {.shape = shape, .tokens = tokens, .storage = storage, .accumulate = accumulate};
}

Conv1dBackward ConvScanBackward::conv_backward() const {
  return {.tokens = tokens,
          .channels = shape.channels(),
          .width = conv_width,
          .storage = storage,
          .accumulate = accumulate};
}

std::string ConvScanBackward::fault() const { return fault_of(*this); }

template <class S>
void ConvScanBackward::reference(const Operands<Pointers<S>>& o) const {
  detail::ConvScanBackwardSteps<S>(*this, o).each(kReference);
}

std::size_t ConvScanBackward::workspace_bytes() const {
  const std::size_t rows = detail::conv_scan_rows_bytes(shape, tokens, storage);
  return rows + (detail::conv_scan_in_place(shape, storage) ? 0 : rows) +
         std::max(scan().workspace_bytes(), conv_backward().workspace_bytes());
}

Cost ConvScanBackward::cost() const {
  const Cost back = scan().cost(), again = conv().cost(), last = conv_backward().cost();
  return {back.flops + last.flops + again.flops,
          back.bytes + last.bytes - 3 * bytes(tokens * shape.channels(), storage)};
}

STOWAGE_REFERENCES(ConvScanForward)
STOWAGE_REFERENCES(ConvScanBackward)

STOWAGE_OPERATOR_RUN(ConvScanForward)
STOWAGE_OPERATOR_RUN(ConvScanBackward)

}  // namespace stowage::kernels
