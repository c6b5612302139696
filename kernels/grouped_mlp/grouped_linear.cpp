#include "kernels/grouped_mlp/grouped_linear.hpp"

#include "kernels/cost.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/grouped_mlp/grouped_linear_cuda.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

// Extents of a grouped product; x (rows, K), y (rows, M), w (E, M, K).
struct Sizes {
  std::int64_t rows, experts, outputs, inputs;
};

Sizes check_sizes(const Operands& operands, const View& x, std::string_view x_name, const View& y,
                  std::string_view y_name, const View& w, std::string_view w_name, Dtype w_dtype,
                  const View& offsets) {
  const Dtype storage = operands.storage(x, x_name);
  operands.rank(x, x_name, 2);
  operands.rank(w, w_name, 3);
  const Sizes s{x.extent(0), w.extent(0), w.extent(1), x.extent(1)};
  operands.check(y, y_name, storage, {s.rows, s.outputs});
  operands.check(w, w_name, w_dtype, {s.experts, s.outputs, s.inputs});
  operands.check(offsets, "offsets", Dtype::int32, {s.experts + 1});
  return s;
}

GroupedCudaShape cuda_shape(const Operands& operands, const Sizes& s, Dtype storage) {
  return {s.rows, s.experts, s.outputs, s.inputs, operands.is_bf16(storage)};
}

cudaStream_t cuda_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

void grouped_linear_forward(Queue& queue, const View& x, const View& w, const View& offsets,
                            const View& y) {
  constexpr std::string_view kOp = "grouped_linear_forward";
  const Operands operands(kOp);
  const Dtype storage = operands.storage(x, "x");
  const Sizes s = check_sizes(operands, x, "x", y, "y", w, "w", storage, offsets);
  const auto reference = [=, x = Address(x), w = Address(w), offsets = Address(offsets),
                          y = Address(y)]<class S>() {
    grouped_linear_forward_ref(s.experts, s.outputs, s.inputs, x.as<const S>(), w.as<const S>(),
                               offsets.as<const std::int32_t>(), y.as<S>());
  };
  run(queue, storage, reference, [&]([[maybe_unused]] void* stream) {
    if constexpr (STOWAGE_HAVE_CUDA) {
      grouped_cuda_forward(cuda_shape(operands, s, storage), x.data[0], w.data[0],
                           offsets.as<const std::int32_t>(), y.data[0], cuda_stream(stream));
    } else {
      throw_no_cuda(kOp);
    }
  });
}

void grouped_linear_backward_input(Queue& queue, const View& dy, const View& w, const View& offsets,
                                   const View& dx, bool accumulate) {
  constexpr std::string_view kOp = "grouped_linear_backward_input";
  const Operands operands(kOp);
  const Dtype storage = operands.storage(dx, "dx");
  const Sizes s = check_sizes(operands, dx, "dx", dy, "dy", w, "w", storage, offsets);
  const auto reference = [=, dy = Address(dy), w = Address(w), offsets = Address(offsets),
                          dx = Address(dx)]<class S>() {
    grouped_linear_backward_input_ref(s.experts, s.outputs, s.inputs, dy.as<const S>(),
                                      w.as<const S>(), offsets.as<const std::int32_t>(), dx.as<S>(),
                                      accumulate);
  };
  run(queue, storage, reference, [&]([[maybe_unused]] void* stream) {
    if constexpr (STOWAGE_HAVE_CUDA) {
      grouped_cuda_backward_input(cuda_shape(operands, s, storage), dy.data[0], w.data[0],
                                  offsets.as<const std::int32_t>(), dx.data[0], accumulate,
                                  cuda_stream(stream));
    } else {
      throw_no_cuda(kOp);
    }
  });
}

void grouped_linear_backward_weight(Queue& queue, const View& dy, const View& x,
                                    const View& offsets, const View& dw, bool accumulate) {
  constexpr std::string_view kOp = "grouped_linear_backward_weight";
  const Operands operands(kOp);
  const Dtype storage = operands.storage(x, "x");
  const Sizes s =
      check_sizes(operands, x, "x", dy, "dy", dw, "dw", execution::accumulation(storage), offsets);
  const auto reference = [=, dy = Address(dy), x = Address(x), offsets = Address(offsets),
                          dw = Address(dw)]<class S>() {
    grouped_linear_backward_weight_ref(s.experts, s.outputs, s.inputs, dy.as<const S>(),
                                       x.as<const S>(), offsets.as<const std::int32_t>(),
                                       dw.as<Accumulation<S>>(), accumulate);
  };
  run(queue, storage, reference, [&]([[maybe_unused]] void* stream) {
    if constexpr (STOWAGE_HAVE_CUDA) {
      grouped_cuda_backward_weight(cuda_shape(operands, s, storage), dy.data[0], x.data[0],
                                   offsets.as<const std::int32_t>(), dw.as<float>(), accumulate,
                                   cuda_stream(stream));
    } else {
      throw_no_cuda(kOp);
    }
  });
}

Cost grouped_linear_forward_cost(std::int64_t rows, std::int64_t experts, std::int64_t outputs,
                                 std::int64_t inputs, Dtype storage) {
  return {product_flops(rows, outputs, inputs),
          bytes(rows * (inputs + outputs), storage) + bytes(experts * outputs * inputs, storage)};
}

Cost grouped_linear_backward_input_cost(std::int64_t rows, std::int64_t experts,
                                        std::int64_t outputs, std::int64_t inputs, Dtype storage,
                                        bool accumulate) {
  return {product_flops(rows, outputs, inputs),
          bytes(rows * outputs, storage) + bytes(experts * outputs * inputs, storage) +
              passes(accumulate) * bytes(rows * inputs, storage)};
}

Cost grouped_linear_backward_weight_cost(std::int64_t rows, std::int64_t experts,
                                         std::int64_t outputs, std::int64_t inputs, Dtype storage,
                                         bool accumulate) {
  return {
      product_flops(rows, outputs, inputs),
      bytes(rows * (inputs + outputs), storage) +
          passes(accumulate) * bytes(experts * outputs * inputs, execution::accumulation(storage))};
}

}  // namespace stowage::kernels
