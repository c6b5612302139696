#include "layers/mixers/products.hpp"

#include <fmt/core.h>

#include "execution/error.hpp"
#include "kernels/fp8/fp8_product.hpp"
#include "kernels/fp8/quantise.hpp"
#include "kernels/linear/linear.hpp"

namespace stowage::layers {

using execution::Dtype;
using execution::Range;

namespace {

// How an op is appended: where it stands, or with what makes gradients of weights.
struct InPlace {
  Recorder& recorder;
  template <class Op>
  void operator()(std::string_view name, const Op& op,
                  const kernels::OperandsOf<Op, Tensor>& operands) const {
    recorder.compute(name, op, operands);
  }
};
struct ForWeights {
  Recorder& recorder;
  WeightsPosition position;
  template <class Op>
  void operator()(std::string_view name, const Op& op,
                  const kernels::OperandsOf<Op, Tensor>& operands) const {
    recorder.compute_weights(name, op, operands, position);
  }
};

}  // namespace

/// @param record appends an op: record(name, op, operands)
template <class Record>
Product::Factor Product::quantise(Recorder& recorder, std::string_view name, const SomeRows& x,
                                  Dtype format, bool plain, bool transposed,
                                  const Record& record) const {
  const std::int64_t rows = recorder.count(x), width = recorder.buffer(x.whole).shape.back();
  if (rows % 16 != 0 || width % 16 != 0)
    execution::throw_usage(
        "train.precision = \"fp8\": the product of {} takes ({}, {}) elements at a time; both must "
        "be multiples of 16",
        weight.name, rows, width);
  const kernels::LargestMagnitude largest{
      .rows = rows, .width = width, .storage = recorder.storage()};
  const kernels::Quantise rounding{.rows = rows,
                                   .width = width,
                                   .storage = recorder.storage(),
                                   .payload = format,
                                   .plain = plain,
                                   .transposed = transposed};
  const auto called = [&](std::string_view what) { return fmt::format("{}_{}", name, what); };
  const Tensor amax = recorder.scratch(called("amax"), recorder.accumulation(), {1});
  Factor factor{.payload = {},
                .transposed = {},
                .scale = recorder.scratch(called("scale"), recorder.accumulation(), {1}),
                .dtype = format};
  if (plain) factor.payload = recorder.scratch(called("payload"), format, {rows, width});
  if (transposed) factor.transposed = recorder.scratch(called("transposed"), format, {width, rows});
  record(called("amax"), largest, {.x = x, .amax = amax});
  record(called("quantise"), rounding,
         {.x = x,
          .amax = amax,
          .payload = factor.payload,
          .transposed = factor.transposed,
          .scale = factor.scale});
  return factor;
}

Product::Factor Product::quantise(Recorder& recorder, std::string_view name, const SomeRows& x,
                                  Dtype format, bool plain, bool transposed) const {
  return quantise(recorder, name, x, format, plain, transposed, InPlace{recorder});
}

/// The gradient of the result; of a whole one both payloads, for both products that take it.
Product::Factor Product::gradient(Recorder& recorder, std::string_view name,
                                  const SomeRows& dy) const {
  if (dy.rows != Range{}) return quantise(recorder, name, dy, *fp8_gradients, true, false);
  Gradient& kept = recorder.kept<Gradient>(*this);
  if (kept.of != dy.whole)
    kept = {dy.whole, quantise(recorder, name, dy, *fp8_gradients, true, true)};
  return kept.factor;
}

void Product::forward(Recorder& recorder, std::string_view name, const SomeRows& x,
                      const SomeRows& y, Range some) const {
  const SomeRows w(recorder.parameter(weight), some);
  if (fp8_gradients) {
    recorder.kept<Gradient>(*this) = {};
    const Factor left = quantise(recorder, fmt::format("{}_x", name), x, Dtype::e4m3, true, false);
    const Factor right = quantise(recorder, fmt::format("{}_w", name), w, Dtype::e4m3, true, false);
    return recorder.compute(name,
                            kernels::Fp8Product{.m = recorder.count(x),
                                                .n = recorder.count(w),
                                                .k = inputs(),
                                                .storage = recorder.storage(),
                                                .a = left.dtype,
                                                .b = right.dtype,
                                                .fast = true},
                            {.a = left.payload,
                             .b = right.payload,
                             .a_scale = left.scale,
                             .b_scale = right.scale,
                             .c = y});
  }
  recorder.compute(name,
                   kernels::LinearForward{.rows = recorder.count(x),
                                          .outputs = recorder.count(w),
                                          .inputs = inputs(),
                                          .storage = recorder.storage(),
                                          .result = recorder.buffer(y.whole).dtype},
                   {.x = x, .w = w, .y = y});
}

void Product::backward_input(Recorder& recorder, std::string_view name, const SomeRows& dy,
                             const SomeRows& dx, bool accumulate) const {
  if (fp8_gradients) {
    const Factor left = gradient(recorder, fmt::format("{}_dy", name), dy);
    const Factor right = quantise(recorder, fmt::format("{}_w", name), recorder.parameter(weight),
                                  Dtype::e4m3, false, true);
    return recorder.compute(name,
                            kernels::Fp8Product{.m = recorder.count(dy),
                                                .n = inputs(),
                                                .k = outputs(),
                                                .storage = recorder.storage(),
                                                .a = left.dtype,
                                                .b = right.dtype,
                                                .accumulate = accumulate},
                            {.a = left.payload,
                             .b = right.transposed,
                             .a_scale = left.scale,
                             .b_scale = right.scale,
                             .c = dx});
  }
  recorder.compute(name,
                   kernels::LinearBackwardInput{.rows = recorder.count(dy),
                                                .outputs = outputs(),
                                                .inputs = inputs(),
                                                .storage = recorder.storage(),
                                                .result = recorder.buffer(dy.whole).dtype,
                                                .accumulate = accumulate},
                   {.dy = dy, .w = recorder.parameter(weight), .dx = dx});
}

void Product::backward_weight(Recorder& recorder, std::string_view name, Tensor dy, Tensor x,
                              WeightsPosition position) const {
  if (fp8_gradients) {
    const Factor left = gradient(recorder, fmt::format("{}_dy", name), dy);
    const ForWeights record{recorder, position};
    const Factor right =
        quantise(recorder, fmt::format("{}_x", name), x, Dtype::e4m3, false, true, record);
    return record(name,
                  kernels::Fp8Product{.m = outputs(),
                                      .n = inputs(),
                                      .k = recorder.tokens(),
                                      .storage = recorder.storage(),
                                      .a = left.dtype,
                                      .b = right.dtype,
                                      .sums = true,
                                      .accumulate = recorder.batch().accumulate},
                  {.a = left.transposed,
                   .b = right.transposed,
                   .a_scale = left.scale,
                   .b_scale = right.scale,
                   .c = recorder.gradient(weight)});
  }
  recorder.compute_weights(name,
                           kernels::LinearBackwardWeight{.rows = recorder.count(x),
                                                         .outputs = outputs(),
                                                         .inputs = inputs(),
                                                         .storage = recorder.storage(),
                                                         .result = recorder.buffer(dy).dtype,
                                                         .accumulate = recorder.batch().accumulate},
                           {.dy = dy, .x = x, .dw = recorder.gradient(weight)}, position);
}

void Product::backward(Recorder& recorder, std::string_view name, Tensor dy, Tensor x,
                       Tensor dx) const {
  recorder.compute(name,
                   kernels::LinearBackward{.rows = recorder.count(x),
                                           .outputs = outputs(),
                                           .inputs = inputs(),
                                           .storage = recorder.storage(),
                                           .result = recorder.buffer(dy).dtype,
                                           .accumulate_dx = true,
                                           .accumulate_dw = recorder.batch().accumulate},
                   {.dy = dy,
                    .x = x,
                    .w = recorder.parameter(weight),
                    .dx = dx,
                    .dw = recorder.gradient(weight)});
}

}  // namespace stowage::layers
