#include "kernels/conv_scan/conv_scan.hpp"

#include <algorithm>

#include "kernels/conv1d/conv1d.hpp"
#include "kernels/conv_scan/conv_scan_steps.hpp"
#include "kernels/cost.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using detail::conv_scan_channels;
using detail::ConvScanGradients;
using detail::ConvScanInputs;
using detail::ConvScanRoom;
using execution::Accumulation;
using execution::Bf16;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

// The scan's gradient of a tile is written by who alone read that tile, after it did: on the host,
// by the tensor-core kernels, and by the simple ones that replace them on other GPUs.
bool in_place(const SsdShape& shape, Dtype storage) {
  return storage == Dtype::fp64 || (storage == Dtype::bf16 && shape.head_dim % 64 == 0 &&
                                    (shape.state == 64 || shape.state == 128));
}

std::size_t rows_bytes(const SsdShape& shape, std::int64_t tokens, Dtype storage) {
  const auto elements = static_cast<std::size_t>(tokens * conv_scan_channels(shape));
  return (elements * execution::size_bytes(storage) + 1023) / 1024 * 1024;
}

class Room {
 public:
  Room(const SsdShape& shape, std::int64_t tokens, Dtype storage, const View& workspace)
      : base_(workspace),
        rows_(rows_bytes(shape, tokens, storage)),
        gradients_(in_place(shape, storage) ? 0 : rows_) {}
  ConvScanRoom forward(const Address& rows) const {
    if (rows) return {rows.as<void>(), nullptr, after(0)};
    return {after(0), nullptr, after(rows_)};
  }
  ConvScanRoom backward() const {
    return {base_.as<std::byte>(), after(gradients_), after(gradients_ + rows_)};
  }

 private:
  void* after(std::size_t bytes) const { return base_.as<std::byte>() + bytes; }
  Address base_;
  std::size_t rows_, gradients_;
};

// The addresses of the inputs, checked.
class Inputs {
 public:
  Inputs(const Operands& operands, Dtype storage, const SsdShape& shape, const Columns& xbc,
         const Columns& dt, const ConvScanParameters& p, const View& seq_idx)
      : xbc_(xbc),
        dt_(dt),
        conv_weight_(p.conv_weight),
        conv_bias_(p.conv_bias),
        a_log_(p.a_log),
        d_(p.d),
        dt_bias_(p.dt_bias),
        seq_idx_(seq_idx),
        conv_width_(p.conv_weight.extent(1)) {
    check(operands, storage, shape, p);
    operands.check(seq_idx, "seq_idx", Dtype::int32, {xbc.rows()});
  }
  static void check(const Operands& operands, Dtype dtype, const SsdShape& shape,
                    const ConvScanParameters& p) {
    const std::int64_t channels = conv_scan_channels(shape);
    operands.rank(p.conv_weight, "conv_weight", 2);
    const std::int64_t width = p.conv_weight.extent(1);
    operands.require(width >= kConv1dMinWidth && width <= kConv1dMaxWidth,
                     "conv_weight has neither 2, 3 nor 4 taps");
    operands.check(p.conv_weight, "conv_weight", dtype, {channels, width});
    operands.check(p.conv_bias, "conv_bias", dtype, {channels});
    operands.check(p.a_log, "a_log", dtype, {shape.heads});
    operands.check(p.d, "d", dtype, {shape.heads});
    operands.check(p.dt_bias, "dt_bias", dtype, {shape.heads});
  }
  template <class S>
  ConvScanInputs<S> as() const {
    return {xbc_.as<const S>(),
            dt_.as<const S>(),
            conv_weight_.as<const S>(),
            conv_bias_.as<const S>(),
            a_log_.as<const S>(),
            d_.as<const S>(),
            dt_bias_.as<const S>(),
            seq_idx_.as<const std::int32_t>(),
            conv_width_};
  }

 private:
  ColumnsAddress xbc_, dt_;
  Address conv_weight_, conv_bias_, a_log_, d_, dt_bias_, seq_idx_;
  std::int64_t conv_width_;
};

class Gradients {
 public:
  Gradients(const Columns& dxbc, const Columns& ddt, const ConvScanParameters& p)
      : dxbc_(dxbc),
        ddt_(ddt),
        conv_weight_(p.conv_weight),
        conv_bias_(p.conv_bias),
        a_log_(p.a_log),
        d_(p.d),
        dt_bias_(p.dt_bias) {}
  template <class S>
  ConvScanGradients<S> as() const {
    using A = Accumulation<S>;
    return {dxbc_.as<S>(),  ddt_.as<S>(), conv_weight_.as<A>(), conv_bias_.as<A>(),
            a_log_.as<A>(), d_.as<A>(),   dt_bias_.as<A>()};
  }

 private:
  ColumnsAddress dxbc_, ddt_;
  Address conv_weight_, conv_bias_, a_log_, d_, dt_bias_;
};

// The number of tokens, from y or dy (n, H P); checks the columns.
std::int64_t check_shape(const Operands& operands, const SsdShape& shape, const View& y,
                         std::string_view operand, const Columns& xbc, const Columns& dt) {
  const Dtype storage = operands.storage(y, operand);
  operands.require(shape.groups > 0 && shape.heads % shape.groups == 0,
                   "heads is not a multiple of groups");
  operands.require(shape.chunk > 0, "chunk is not positive");
  operands.require(shape.dt_min <= shape.dt_max, "dt_min is above dt_max");
  operands.rank(y, operand, 2);
  const std::int64_t n = y.extent(0);
  operands.check(y, operand, storage, {n, shape.heads * shape.head_dim});
  operands.check(xbc, "xbc", storage, n, conv_scan_channels(shape));
  operands.check(dt, "dt", storage, n, shape.heads);
  return n;
}

template <class Op>
Op conv(const SsdShape& shape, std::int64_t tokens, Dtype storage, std::int64_t width) {
  Op op{};
  op.tokens = tokens;
  op.channels = conv_scan_channels(shape);
  op.width = width;
  op.storage = storage;
  return op;
}

}  // namespace

void conv_scan_forward(Queue& queue, const SsdShape& shape, const ConvScanForwardOperands& views) {
  const Operands operands("conv_scan_forward");
  const std::int64_t n = check_shape(operands, shape, views.y, "y", views.xbc, views.dt);
  const Dtype storage = views.y.dtype();
  const Inputs inputs(operands, storage, shape, views.xbc, views.dt, views.parameters,
                      views.seq_idx);
  operands.workspace(views.workspace, conv_scan_forward_workspace_bytes(
                                          shape, n, storage, static_cast<bool>(views.convolved)));
  operands.check_optional(views.convolved, "convolved", storage, {n, conv_scan_channels(shape)});
  const Address to(views.y), rows(views.convolved);
  const ConvScanRoom room = Room(shape, n, storage, views.workspace).forward(rows);
  run(
      queue, "conv_scan_forward", storage,
      [=]<class S>() {
        const auto in = inputs.as<S>();
        S* between = static_cast<S*>(room.convolved);
        in.conv().reference(in.conv_operands(between));
        ssd_forward_ref(shape, in.scan(shape, between), to.as<S>(),
                        static_cast<Accumulation<S>*>(room.parts));
      },
      [&]<class S>(void* stream) {
        return detail::conv_scan_forward_cuda(shape, inputs.as<S>(), to.as<S>(), room, stream);
      });
}

void conv_scan_backward(Queue& queue, const SsdShape& shape, const ConvScanBackwardOperands& views,
                        bool accumulate) {
  const Operands operands("conv_scan_backward");
  const std::int64_t n = check_shape(operands, shape, views.dy, "dy", views.xbc, views.dt);
  const Dtype storage = views.dy.dtype();
  const Inputs inputs(operands, storage, shape, views.xbc, views.dt, views.parameters,
                      views.seq_idx);
  operands.check(views.dxbc, "dxbc", storage, n, conv_scan_channels(shape));
  operands.check(views.ddt, "ddt", storage, n, shape.heads);
  Inputs::check(operands, execution::accumulation(storage), shape, views.gradients);
  operands.workspace(views.workspace, conv_scan_backward_workspace_bytes(shape, n, storage));
  const Gradients results(views.dxbc, views.ddt, views.gradients);
  const Address from(views.dy);
  const ConvScanRoom room = Room(shape, n, storage, views.workspace).backward();
  run(
      queue, "conv_scan_backward", storage,
      [=]<class S>() {
        using A = Accumulation<S>;
        const auto in = inputs.as<S>();
        const auto out = results.as<S>();
        S* convolved = static_cast<S*>(room.convolved);
        S* dconvolved = static_cast<S*>(room.dconvolved);
        A* parts = static_cast<A*>(room.parts);
        in.conv().reference(in.conv_operands(convolved));
        ssd_backward_ref(shape, in.scan(shape, convolved), from.as<const S>(),
                         out.scan(shape, dconvolved), parts, accumulate);
        out.conv(in, accumulate).reference(out.conv_operands(in, dconvolved, parts));
      },
      [&]<class S>(void* stream) {
        return detail::conv_scan_backward_cuda(shape, inputs.as<S>(), from.as<const S>(),
                                               results.as<S>(), room, accumulate, stream);
      });
}

std::size_t conv_scan_forward_workspace_bytes(const SsdShape& shape, std::int64_t tokens,
                                              Dtype storage, bool has_rows) {
  return (has_rows ? 0 : rows_bytes(shape, tokens, storage)) +
         ssd_forward_workspace_bytes(shape, tokens, storage);
}

std::size_t conv_scan_backward_workspace_bytes(const SsdShape& shape, std::int64_t tokens,
                                               Dtype storage) {
  const std::size_t rows = rows_bytes(shape, tokens, storage);
  return rows + (in_place(shape, storage) ? 0 : rows) +
         std::max(ssd_backward_workspace_bytes(shape, tokens, storage),
                  conv<Conv1dBackward>(shape, tokens, storage, kConv1dMaxWidth).workspace_bytes());
}

Cost conv_scan_forward_cost(const SsdShape& shape, std::int64_t tokens, Dtype storage,
                            std::int64_t conv_width) {
  const Cost scan = ssd_forward_cost(shape, tokens, storage);
  const Cost conv = kernels::conv<Conv1dForward>(shape, tokens, storage, conv_width).cost();
  const double between = 2 * bytes(tokens * conv_scan_channels(shape), storage);
  return {scan.flops + conv.flops, scan.bytes + conv.bytes - between};
}

Cost conv_scan_backward_cost(const SsdShape& shape, std::int64_t tokens, Dtype storage,
                             std::int64_t conv_width) {
  const std::int64_t channels = conv_scan_channels(shape);
  const Cost scan = ssd_backward_cost(shape, tokens, storage);
  const Cost conv = kernels::conv<Conv1dBackward>(shape, tokens, storage, conv_width).cost();
  const Cost again = kernels::conv<Conv1dForward>(shape, tokens, storage, conv_width).cost();
  const double between = 3 * bytes(tokens * channels, storage);
  return {scan.flops + conv.flops + again.flops, scan.bytes + conv.bytes - between};
}

}  // namespace stowage::kernels
