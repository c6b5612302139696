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
  static constexpr bool kInPlace = true;
  Recorder& recorder;
  template <class Op>
  void operator()(std::string_view name, const Op& op,
                  const kernels::OperandsOf<Op, Tensor>& operands) const {
    recorder.compute(name, op, operands);
  }
};
struct ForWeights {
  static constexpr bool kInPlace = false;
  Recorder& recorder;
  WeightsPosition position;
  template <class Op>
  void operator()(std::string_view name, const Op& op,
                  const kernels::OperandsOf<Op, Tensor>& operands) const {
    recorder.compute_weights(name, op, operands, position);
  }
};

/// A payload with its scale, in one tensor: saved under a module, or scratch.
Tensor quantised_tensor(Recorder& recorder, std::string_view name, Dtype format,
                        std::vector<std::int64_t> shape, std::string_view module) {
  const execution::Lifetime lifetime =
      module.empty() ? execution::Lifetime::scratch : execution::Lifetime::saved;
  execution::TensorInfo info = execution::one_buffer(
      recorder.full_name(name), format, std::move(shape), lifetime, std::string(module));
  info.buffers.push_back({"scale", recorder.accumulation(), {1}});
  return recorder.program().add(std::move(info));
}

kernels::BufferOf<Tensor> scale_of(Tensor factor) { return {factor, 1}; }

/// Evaluation has no backward, which transposes are for.
bool has_backward(const Recorder& recorder) {
  return static_cast<bool>(recorder.batch().loss_scale);
}

}  // namespace

/// @param record appends an op: record(name, op, operands)
template <class Record>
Product::Factor Product::quantise(Recorder& recorder, std::string_view name, const ProductInput& x,
                                  Dtype format, const Wanted& wanted, const Record& record) const {
  const std::int64_t rows = recorder.count(x), columns = recorder.buffer(x.whole).shape.back();
  const std::int64_t width =
      x.activation ? columns / kernels::activation_width(*x.activation, 1) : columns;
  if (rows % 16 != 0 || width % 16 != 0)
    execution::throw_usage(
        "train.precision = \"{}\": the product of {} takes ({}, {}) elements at a time; both must "
        "be multiples of 16",
        formats.precision->name, weight.name, rows, width);
  const auto called = [&](std::string_view what) { return fmt::format("{}_{}", name, what); };
  const bool whole = x.rows == Range{}, activated = x.activation.has_value();
  Tensor amax = whole ? magnitude(recorder, x.whole, activated) : Tensor{};
  if (!amax) {
    // What is left for later is not known to the ops before.
    amax = whole && Record::kInPlace
               ? measure(recorder, x.whole, activated)
               : recorder.scratch(called("amax"), recorder.accumulation(), {1});
    record(called("amax"),
           kernels::LargestMagnitude{.rows = rows,
                                     .width = width,
                                     .storage = recorder.storage(),
                                     .activation = x.activation},
           {.x = x, .amax = amax});
  }
  Factor factor{.plain = {}, .transposed = {}, .dtype = format};
  if (wanted.plain)
    factor.plain = quantised_tensor(recorder, called("payload"), format, {rows, width}, {});
  if (wanted.transposed)
    factor.transposed =
        quantised_tensor(recorder, called("transposed"), format, {width, rows}, wanted.module);
  record(called("quantise"),
         kernels::Quantise{.rows = rows,
                           .width = width,
                           .storage = recorder.storage(),
                           .payload = format,
                           .plain = wanted.plain,
                           .transposed = wanted.transposed,
                           .activation = x.activation},
         {.x = x,
          .amax = amax,
          .payload = factor.plain,
          .scale = scale_of(factor.plain),
          .transposed = factor.transposed,
          .transposed_scale = scale_of(factor.transposed)});
  return factor;
}

Product::Factor Product::quantise(Recorder& recorder, std::string_view name, const ProductInput& x,
                                  Dtype format, const Wanted& wanted) const {
  return quantise(recorder, name, x, format, wanted, InPlace{recorder});
}

/// x for forward; of a whole one that backward needs in no other form, what backward needs too.
Product::Factor Product::input(Recorder& recorder, std::string_view name,
                               const ProductInput& x) const {
  if (x.rows != Range{}) return quantise(recorder, name, x, formats.values(), {true, false});
  RoundedInput& kept = recorder.kept<RoundedInput>(*this);
  if (kept.of != x.whole) {
    const std::string_view module = module_of_payload(recorder, x.whole, x.activation.has_value());
    const bool saved = !module.empty() && has_backward(recorder);
    kept = {{x.whole, quantise(recorder, name, x, formats.values(), {true, saved, module})}};
  }
  return kept.factor;
}

/// The weight of a step. Forward comes first, but where it takes some of the outputs at a time.
Product::Factor Product::whole_weight(Recorder& recorder, std::string_view name,
                                      bool forward) const {
  Factor& kept = recorder.kept_of_step<Factor>(*this);
  if (!(forward ? kept.plain : kept.transposed))
    kept = quantise(recorder, name, recorder.parameter(weight), formats.values(),
                    {forward, has_backward(recorder)});
  return kept;
}

/// The gradient of the result; of a whole one both tensors, for both products that take it.
Product::Factor Product::gradient(Recorder& recorder, std::string_view name,
                                  const SomeRows& dy) const {
  if (dy.rows != Range{}) return quantise(recorder, name, dy, formats.gradients, {true, false});
  RoundedGradient& kept = recorder.kept<RoundedGradient>(*this);
  if (kept.of != dy.whole)
    kept = {{dy.whole, quantise(recorder, name, dy, formats.gradients, {true, true})}};
  return kept.factor;
}

void Product::forward(Recorder& recorder, std::string_view name, const ProductInput& x,
                      const SomeRows& y, Range some) const {
  const SomeRows w(recorder.parameter(weight), some);
  if (quantised()) {
    const Factor left = input(recorder, fmt::format("{}_x", name), x);
    const std::string of_w = fmt::format("{}_w", name);
    const Factor right = some == Range{}
                             ? whole_weight(recorder, of_w, true)
                             : quantise(recorder, of_w, w, formats.values(), {true, false});
    return recorder.compute(name,
                            kernels::Fp8Product{.m = recorder.count(x),
                                                .n = recorder.count(w),
                                                .k = inputs(),
                                                .storage = recorder.storage(),
                                                .a = left.dtype,
                                                .b = right.dtype,
                                                .fast = true},
                            {.a = left.plain,
                             .b = right.plain,
                             .a_scale = scale_of(left.plain),
                             .b_scale = scale_of(right.plain),
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
  if (quantised()) {
    const Factor left = gradient(recorder, fmt::format("{}_dy", name), dy);
    const Factor right = whole_weight(recorder, fmt::format("{}_w", name), false);
    return recorder.compute(name,
                            kernels::Fp8Product{.m = recorder.count(dy),
                                                .n = inputs(),
                                                .k = outputs(),
                                                .storage = recorder.storage(),
                                                .a = left.dtype,
                                                .b = right.dtype,
                                                .accumulate = accumulate},
                            {.a = left.plain,
                             .b = right.transposed,
                             .a_scale = scale_of(left.plain),
                             .b_scale = scale_of(right.transposed),
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

void Product::backward_weight(Recorder& recorder, std::string_view name, Tensor dy,
                              const ProductInput& x, WeightsPosition position) const {
  if (quantised()) {
    const Factor left = gradient(recorder, fmt::format("{}_dy", name), dy);
    const ForWeights record{recorder, position};
    const RoundedInput& kept = recorder.kept<RoundedInput>(*this);
    const Factor right = kept.of == x.whole && kept.factor.transposed
                             ? kept.factor
                             : quantise(recorder, fmt::format("{}_x", name), x, formats.values(),
                                        {false, true}, record);
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
                   .a_scale = scale_of(left.transposed),
                   .b_scale = scale_of(right.transposed),
                   .c = recorder.gradient(weight)});
  }
  recorder.compute_weights(name,
                           kernels::LinearBackwardWeight{.rows = recorder.count(x),
                                                         .outputs = outputs(),
                                                         .inputs = inputs(),
                                                         .storage = recorder.storage(),
                                                         .result = recorder.buffer(dy).dtype,
                                                         .accumulate = recorder.batch().accumulate},
                           {.dy = dy, .x = x.whole, .dw = recorder.gradient(weight)}, position);
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
