#pragma once

#include <utility>
#include <vector>

#include "ctest/kernels/packed.hpp"
#include "ctest/kernels/support.hpp"
#include "kernels/conv1d/conv1d.hpp"
#include "kernels/conv_scan/conv_scan.hpp"

/// Convolution and scan of a mixer, with the operands laid out as the layer has them, run as one
/// operator or as two.
namespace stowage::kernels::test {

struct ConvScanCase {
  SsdShape shape;
  Packed packed;
  std::int64_t taps = 4;  ///< of the convolution

  std::int64_t inner() const { return shape.heads * shape.head_dim; }
  std::int64_t shared() const { return shape.groups * shape.state; }
  std::int64_t channels() const { return inner() + 2 * shared(); }
  /// Columns of in_proj's output: z, xBC, dt, and what makes rows whole 16 bytes.
  std::int64_t width() const { return (inner() + channels() + shape.heads + 7) / 8 * 8; }
};

struct ConvScanProblem {
  ConvScanProblem(const ConvScanCase& c, Dtype storage, Random& random)
      : n(c.packed.tokens),
        zxbcdt(storage, {n, c.width()}, random.normal(n * c.width())),
        conv_weight(storage, {c.channels(), c.taps}, random.normal(c.channels() * c.taps, 0.5)),
        conv_bias(storage, {c.channels()}, random.normal(c.channels(), 0.3)),
        a_log(storage, {c.shape.heads}, random.uniform(c.shape.heads, -3, 1)),
        d(storage, {c.shape.heads}, random.normal(c.shape.heads)),
        dt_bias(storage, {c.shape.heads}, random.uniform(c.shape.heads, -4, 0)),
        seq_idx(c.packed.seq_idx()),
        dy(storage, {n, c.inner()}, random.normal(n * c.inner())),
        y(storage, {n, c.inner()}),
        dzxbcdt(storage, {n, c.width()}),
        dconv_weight(sums(storage), {c.channels(), c.taps}),
        dconv_bias(sums(storage), {c.channels()}),
        da_log(sums(storage), {c.shape.heads}),
        dd(sums(storage), {c.shape.heads}),
        ddt_bias(sums(storage), {c.shape.heads}),
        xbc(storage, {n, c.channels()}),
        dxbc(storage, {n, c.channels()}),
        forward_room(workspace(conv_scan_forward_workspace_bytes(c.shape, n, storage))),
        backward_room(workspace(conv_scan_backward_workspace_bytes(c.shape, n, storage))) {}

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

  static Dtype sums(Dtype storage) { return execution::accumulation(storage); }

  std::int64_t n;
  Array zxbcdt, conv_weight, conv_bias, a_log, d, dt_bias, seq_idx, dy;
  Array y, dzxbcdt, dconv_weight, dconv_bias, da_log, dd, ddt_bias;
  Array xbc, dxbc;  ///< between the two operators
  Array convolved;  ///< of the one operator, or absent
  Array forward_room, backward_room;
};

/// Columns of in_proj's output or its gradient.
struct ConvScanColumns {
  template <class Tensor>
  ConvScanColumns(const ConvScanCase& c, const Tensor& zxbcdt)
      : xbc{zxbcdt, c.inner(), c.channels()}, dt{zxbcdt, c.inner() + c.channels(), c.shape.heads} {}
  Columns xbc, dt;
};

/// Enqueues forward and backward as one operator each; `at` gives the view for an array.
template <class At>
void enqueue_fused(Queue& q, const ConvScanCase& c, const ConvScanProblem& p, At&& at,
                   bool accumulate) {
  const ConvScanColumns in(c, View(at(p.zxbcdt))), out(c, View(at(p.dzxbcdt)));
  const ConvScanParameters values{.conv_weight = at(p.conv_weight),
                                  .conv_bias = at(p.conv_bias),
                                  .a_log = at(p.a_log),
                                  .d = at(p.d),
                                  .dt_bias = at(p.dt_bias)};
  conv_scan_forward(q, c.shape,
                    {.xbc = in.xbc,
                     .dt = in.dt,
                     .parameters = values,
                     .seq_idx = at(p.seq_idx),
                     .convolved = at(p.convolved),
                     .y = at(p.y),
                     .workspace = at(p.forward_room)});
  conv_scan_backward(q, c.shape,
                     {.dy = at(p.dy),
                      .xbc = in.xbc,
                      .dt = in.dt,
                      .parameters = values,
                      .seq_idx = at(p.seq_idx),
                      .dxbc = out.xbc,
                      .ddt = out.dt,
                      .gradients = {.conv_weight = at(p.dconv_weight),
                                    .conv_bias = at(p.dconv_bias),
                                    .a_log = at(p.da_log),
                                    .d = at(p.dd),
                                    .dt_bias = at(p.ddt_bias)},
                      .workspace = at(p.backward_room)},
                     accumulate);
}

/// The same by the two operators.
template <class At>
void enqueue_separate(Queue& q, const ConvScanCase& c, const ConvScanProblem& p, At&& at,
                      bool accumulate) {
  const ConvScanColumns in(c, View(at(p.zxbcdt))), out(c, View(at(p.dzxbcdt)));
  const View xbc = at(p.xbc), dxbc = at(p.dxbc);
  const auto part = [&](const View& view, int i) {
    const std::int64_t first[] = {0, c.inner(), c.inner() + c.shared()};
    return Columns{view, first[i], i == 0 ? c.inner() : c.shared()};
  };
  Conv1dForward{.tokens = p.n, .channels = c.channels(), .width = c.taps, .storage = p.y.dtype()}
      .run(q, {.x = in.xbc,
               .w = at(p.conv_weight),
               .b = at(p.conv_bias),
               .seq_idx = at(p.seq_idx),
               .y = xbc,
               .halo = {}});
  const SsdInputOperands inputs{.x = part(xbc, 0),
                                .dt = in.dt,
                                .b = part(xbc, 1),
                                .c = part(xbc, 2),
                                .a_log = at(p.a_log),
                                .d = at(p.d),
                                .dt_bias = at(p.dt_bias),
                                .seq_idx = at(p.seq_idx)};
  ssd_forward(q, c.shape, {.inputs = inputs, .y = at(p.y), .workspace = at(p.forward_room)});
  ssd_backward(q, c.shape,
               {.dy = at(p.dy),
                .inputs = inputs,
                .dx = part(dxbc, 0),
                .ddt = out.dt,
                .db = part(dxbc, 1),
                .dc = part(dxbc, 2),
                .da_log = at(p.da_log),
                .dd = at(p.dd),
                .ddt_bias = at(p.ddt_bias),
                .workspace = at(p.backward_room)},
               accumulate);
  Conv1dBackward{.tokens = p.n,
                 .channels = c.channels(),
                 .width = c.taps,
                 .storage = p.y.dtype(),
                 .accumulate = accumulate}
      .run(q, {.dy = dxbc,
               .x = in.xbc,
               .w = at(p.conv_weight),
               .b = at(p.conv_bias),
               .seq_idx = at(p.seq_idx),
               .dx = out.xbc,
               .dw = at(p.dconv_weight),
               .db = at(p.dconv_bias),
               .workspace = at(p.backward_room),
               .halo = {},
               .dhalo = {}});
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
  return columns_of(array, c.inner(), c.channels() + c.shape.heads);
}

}  // namespace stowage::kernels::test
