#pragma once

#include <utility>
#include <vector>

#include "ctest/kernels/scan_case.hpp"
#include "kernels/conv_scan/conv_scan.hpp"

/// Convolution and scan of a mixer, with the operands laid out as the layer has them, run as one
/// operator or as two.
namespace stowage::kernels::test {

struct ConvScanCase {
  SsdShape shape;
  Packed packed;
  std::int64_t taps = 4;  ///< of the convolution

  /// ConvScanForward or ConvScanBackward.
  template <class Op>
  Op op(Dtype storage) const {
    Op op{};
    op.shape = shape;
    op.tokens = packed.tokens;
    op.conv_width = taps;
    op.storage = storage;
    return op;
  }
  /// Columns of in_proj's output: z, xBC, dt, and what makes rows whole 16 bytes.
  std::int64_t width() const {
    return (shape.inner() + shape.channels() + shape.heads + 7) / 8 * 8;
  }
};

struct ConvScanProblem {
  ConvScanProblem(const ConvScanCase& c, Dtype storage, Random& random)
      : n(c.packed.tokens),
        zxbcdt(storage, {n, c.width()}, random.normal(n * c.width())),
        conv_weight(storage, {c.shape.channels(), c.taps},
                    random.normal(c.shape.channels() * c.taps, 0.5)),
        conv_bias(storage, {c.shape.channels()}, random.normal(c.shape.channels(), 0.3)),
        a_log(storage, {c.shape.heads}, random.uniform(c.shape.heads, -3, 1)),
        d(storage, {c.shape.heads}, random.normal(c.shape.heads)),
        dt_bias(storage, {c.shape.heads}, random.uniform(c.shape.heads, -4, 0)),
        seq_idx(c.packed.seq_idx()),
        dy(storage, {n, c.shape.inner()}, random.normal(n * c.shape.inner())),
        y(storage, {n, c.shape.inner()}),
        dzxbcdt(storage, {n, c.width()}),
        dconv_weight(sums(storage), {c.shape.channels(), c.taps}),
        dconv_bias(sums(storage), {c.shape.channels()}),
        da_log(sums(storage), {c.shape.heads}),
        dd(sums(storage), {c.shape.heads}),
        ddt_bias(sums(storage), {c.shape.heads}),
        xbc(storage, {n, c.shape.channels()}),
        dxbc(storage, {n, c.shape.channels()}),
        forward_room(workspace(c.op<ConvScanForward>(storage).workspace_bytes())),
        backward_room(workspace(c.op<ConvScanBackward>(storage).workspace_bytes())) {}

  /// The same values in fp64, outputs poisoned.
  ConvScanProblem in_fp64(const ConvScanCase& c) const {
    Random unused;
    ConvScanProblem p(c, Dtype::fp64, unused);
    for (const auto member : {&ConvScanProblem::zxbcdt, &ConvScanProblem::conv_weight,
                              &ConvScanProblem::conv_bias, &ConvScanProblem::a_log,
                              &ConvScanProblem::d, &ConvScanProblem::dt_bias, &ConvScanProblem::dy})
      (p.*member).set((this->*member).values());
    return p;
  }

  /// As operands; xbc before the convolution or behind it.
  SsdInputs<Array> inputs(const ConvScanCase& c, const ColumnsOf<Array>& rows) const {
    return {.xbc = rows,
            .dt = {zxbcdt, c.shape.inner() + c.shape.channels(), c.shape.heads},
            .a_log = a_log,
            .d = d,
            .dt_bias = dt_bias,
            .seq_idx = seq_idx,
            .initial_state = {}};
  }
  SsdGradients<Array> gradients(const ConvScanCase& c, const ColumnsOf<Array>& rows) const {
    return {.dxbc = rows,
            .ddt = {dzxbcdt, c.shape.inner() + c.shape.channels(), c.shape.heads},
            .da_log = da_log,
            .dd = dd,
            .ddt_bias = ddt_bias};
  }
  static ColumnsOf<Array> xbc_of(const ConvScanCase& c, const Array& zxbcdt) {
    return {zxbcdt, c.shape.inner(), c.shape.channels()};
  }
  Arrays<ConvScanForward> forward(const ConvScanCase& c) const {
    return {.conv_weight = conv_weight,
            .conv_bias = conv_bias,
            .inputs = inputs(c, xbc_of(c, zxbcdt)),
            .y = y,
            .workspace = forward_room,
            .convolved = convolved};
  }
  Arrays<ConvScanBackward> backward(const ConvScanCase& c) const {
    return {.dy = dy,
            .conv_weight = conv_weight,
            .conv_bias = conv_bias,
            .inputs = inputs(c, xbc_of(c, zxbcdt)),
            .dconv_weight = dconv_weight,
            .dconv_bias = dconv_bias,
            .gradients = gradients(c, xbc_of(c, dzxbcdt)),
            .workspace = backward_room};
  }

  static Dtype sums(Dtype storage) { return execution::accumulation(storage); }

  std::int64_t n;
  Array zxbcdt, conv_weight, conv_bias, a_log, d, dt_bias, seq_idx, dy;
  Array y, dzxbcdt, dconv_weight, dconv_bias, da_log, dd, ddt_bias;
  Array xbc, dxbc;  ///< between the two operators
  Array convolved;  ///< of the one operator, or absent
  Array forward_room, backward_room;
};

/// Enqueues forward and backward as one operator each; `at` gives the view for an array.
template <class At>
void enqueue_fused(Queue& q, const ConvScanCase& c, const ConvScanProblem& p, At&& at,
                   bool accumulate) {
  auto forward = c.op<ConvScanForward>(p.y.dtype());
  forward.convolved = static_cast<bool>(p.convolved.view());
  enqueue(q, forward, p.forward(c), at);
  auto backward = c.op<ConvScanBackward>(p.y.dtype());
  backward.accumulate = accumulate;
  enqueue(q, backward, p.backward(c), at);
}

/// The same by the two operators.
template <class At>
void enqueue_separate(Queue& q, const ConvScanCase& c, const ConvScanProblem& p, At&& at,
                      bool accumulate) {
  const std::int64_t channels = c.shape.channels();
  auto op = c.op<ConvScanBackward>(p.y.dtype());
  op.accumulate = accumulate;
  const SsdInputs<Array> inputs = p.inputs(c, {p.xbc, 0, channels});
  enqueue(q, op.conv(),
          {.x = p.xbc_of(c, p.zxbcdt),
           .w = p.conv_weight,
           .b = p.conv_bias,
           .seq_idx = p.seq_idx,
           .y = p.xbc,
           .halo = {}},
          at);
  enqueue(q, c.op<ConvScanForward>(p.y.dtype()).scan(),
          {.inputs = inputs,
           .y = p.y,
           .workspace = p.forward_room,
           .final_state = {},
           .total_decay = {}},
          at);
  enqueue(q, op.scan(),
          {.inputs = inputs,
           .dy = p.dy,
           .gradients = p.gradients(c, {p.dxbc, 0, channels}),
           .workspace = p.backward_room,
           .dfinal_state = {},
           .dinitial_state = {}},
          at);
  enqueue(q, op.conv_backward(),
          {.dy = p.dxbc,
           .x = p.xbc_of(c, p.zxbcdt),
           .w = p.conv_weight,
           .b = p.conv_bias,
           .seq_idx = p.seq_idx,
           .dx = p.xbc_of(c, p.dzxbcdt),
           .dw = p.dconv_weight,
           .db = p.dconv_bias,
           .workspace = p.backward_room,
           .halo = {},
           .dhalo = {}},
          at);
}

/// What both leave; z's columns of dzxbcdt and what fills its rows are no result.
struct ConvScanResult {
  const char* name;
  Array ConvScanProblem::*array;
  double roundings;  ///< to storage, on the way
};
inline constexpr ConvScanResult kConvScanResults[] = {
    {"y", &ConvScanProblem::y, 3},
    {"dzxbcdt", &ConvScanProblem::dzxbcdt, 5},
    {"dconv_weight", &ConvScanProblem::dconv_weight, 5},
    {"dconv_bias", &ConvScanProblem::dconv_bias, 5},
    {"da_log", &ConvScanProblem::da_log, 5},
    {"dd", &ConvScanProblem::dd, 3},
    {"ddt_bias", &ConvScanProblem::ddt_bias, 5}};

inline Values values_of(const ConvScanCase& c, const ConvScanResult& r, const Array& array) {
  if (r.array != &ConvScanProblem::dzxbcdt) return array.values();
  return columns_of(array, c.shape.inner(), c.shape.channels() + c.shape.heads);
}

}  // namespace stowage::kernels::test
