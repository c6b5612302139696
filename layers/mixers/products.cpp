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

/// Columns that a product takes of x.
std::int64_t columns_of(const Recorder& recorder, const ProductInput& x) {
  const std::int64_t columns = recorder.buffer(x.whole).shape.back();
  return x.activation ? columns / kernels::activation_width(*x.activation, 1) : columns;
}

/// Evaluation has no backward, which transposes are for.
bool has_backward(const Recorder& recorder) {
  return static_cast<bool>(recorder.batch().loss_scale);
}

}  // namespace

/// @param record appends an op: record(name, op, operands)
template <class Record>
Tensor Product::largest(Recorder& recorder, std::string_view name, const ProductInput& x,
                        const Record& record) const {
  const bool whole = x.rows == Range{}, activated = x.activation.has_value();
  if (const Tensor known = whole ? magnitude(recorder, x.whole, activated) : Tensor{}) return known;
  // What is left for later is not known to the ops before.
  const std::string called = fmt::format("{}_amax", name);
  const Tensor amax = whole && Record::kInPlace
                          ? measure(recorder, x.whole, activated)
                          : recorder.scratch(called, recorder.accumulation(), {1});
  record(called,
         kernels::LargestMagnitude{.rows = recorder.count(x),
                                   .width = columns_of(recorder, x),
                                   .storage = recorder.storage(),
                                   .activation = x.activation},
         {.x = x, .amax = amax});
  return amax;
}

template <class Record>
Product::Factor Product::quantise(Recorder& recorder, std::string_view name, const ProductInput& x,
                                  Dtype format, const Wanted& wanted, const Record& record,
                                  Tensor magnitudes) const {
  const std::int64_t rows = recorder.count(x), width = columns_of(recorder, x);
  if (rows % 16 != 0 || width % 16 != 0)
    execution::throw_usage(
        "train.precision = \"{}\": the product of {} takes ({}, {}) elements at a time; both must "
        "be multiples of 16",
        formats.precision->name, weight.name, rows, width);
  const auto called = [&](std::string_view what) { return fmt::format("{}_{}", name, what); };
  if (!magnitudes) magnitudes = largest(recorder, name, x, record);
  const auto made = [&](std::string_view what, std::vector<std::int64_t> shape,
                        std::string_view module) -> Payload {
    const Tensor of = quantised_tensor(recorder, called(what), format, std::move(shape), module);
    return {of, {of, 1}};
  };
  Factor factor;
  if (wanted.plain)
    factor.plain =
        made("payload", {rows, width}, wanted.transposed ? std::string_view() : wanted.module);
  if (wanted.transposed) factor.transposed = made("transposed", {width, rows}, wanted.module);
  record(called("quantise"),
         kernels::Quantise{.rows = rows,
                           .width = width,
                           .storage = recorder.storage(),
                           .payload = format,
                           .plain = wanted.plain,
                           .transposed = wanted.transposed,
                           .activation = x.activation,
                           .parts = static_cast<int>(recorder.buffer(magnitudes).elements())},
         {.x = x,
          .amax = magnitudes,
          .payload = factor.plain.bytes,
          .scale = factor.plain.scale,
          .transposed = factor.transposed.bytes,
          .transposed_scale = factor.transposed.scale});
  return factor;
}

Product::Factor Product::quantise(Recorder& recorder, std::string_view name, const ProductInput& x,
                                  Dtype format, const Wanted& wanted) const {
  return quantise(recorder, name, x, format, wanted, InPlace{recorder});
}

Tensor Product::shared_input(Recorder& recorder, const std::string& name, Tensor x,
                             const SharedRows& rows) const {
  return quantised() ? shared(recorder, name, x, rows, formats.values(), true) : x;
}

Tensor Product::shared_gradient(Recorder& recorder, const std::string& name, Tensor dy,
                                const SharedRows& rows) const {
  return quantised() ? shared(recorder, name, dy, rows, formats.gradients, false) : dy;
}

Tensor Product::shared(Recorder& recorder, const std::string& name, Tensor mine,
                       const SharedRows& rows, Dtype format, bool again) const {
  if (rows.size() == 1) return mine;
  SharedRounding& known = shared_rounding(recorder, mine);
  if (known.payload) return known.payload;
  const InPlace record{recorder};
  if (!known.magnitudes) {
    const std::string called = name + "_amaxes";
    const std::vector<std::int64_t> ranks = {rows.size()};
    // Kept, so that ranks need not exchange them again where backward rounds x again.
    known.magnitudes = again ? recorder.saved(called, recorder.accumulation(), ranks, "")
                             : recorder.scratch(called, recorder.accumulation(), ranks);
    rows.gather_to(recorder, called, largest(recorder, name, mine, record), known.magnitudes);
  }
  const std::string_view module =
      has_backward(recorder) ? module_of_payload(recorder, mine, false) : std::string_view();
  const Tensor payload =
      quantise(recorder, name, mine, format, {true, false, module}, record, known.magnitudes)
          .plain.bytes.whole;
  if (!module.empty()) known.payload = payload;  // otherwise backward makes it again
  return payload;
}

/// Of a payload that ranks gathered, for all products that take it: at one position.
template <class Record>
Product::Payload Product::transposed(Recorder& recorder, std::string_view name, Tensor payload,
                                     const Record& record) const {
  Tensor& made = shared_rounding(recorder, payload).transposed;
  if (!made) {
    const execution::BufferInfo buffer = recorder.buffer(payload);
    const std::int64_t rows = buffer.shape[0], width = buffer.shape[1];
    const std::string called = fmt::format("{}_transposed", name);
    made = recorder.scratch(called, buffer.dtype, {width, rows});
    record(
        called,
        kernels::TransposePayload{
            .rows = rows, .width = width, .storage = recorder.storage(), .payload = buffer.dtype},
        {.payload = payload, .transposed = made});
  }
  return {made, {scale_of(recorder, payload), 1}};
}

/// x for forward. Of a whole one that backward needs in no other form, what backward needs too.
Product::Payload Product::input(Recorder& recorder, std::string_view name,
                                const ProductInput& x) const {
  if (is_payload(recorder, x.whole))
    return {{x.whole, 0, x.rows}, {scale_of(recorder, x.whole), 1}};
  if (!x.complete)
    return quantise(recorder, fmt::format("{}_x", name), x, formats.values(), {true, false}).plain;
  RoundedInput& kept = recorder.kept<RoundedInput>(*this);
  if (kept.of != x.whole) {
    const bool activated = x.activation.has_value();
    const std::string_view module = module_of_payload(recorder, x.whole, activated);
    const bool saved = !module.empty() && has_backward(recorder);
    const std::string of_all = fmt::format("{}_x", name.substr(0, name.find('/')));
    kept = {{x.whole, quantise(recorder, of_all, {x.whole, {}, x.activation}, formats.values(),
                               {true, saved, module})}};
  }
  Payload some = kept.factor.plain;
  some.bytes.rows = x.rows;
  return some;
}

/// The weight of a step. Forward comes first, but where it takes some of the outputs at a time.
Product::Payload Product::whole_weight(Recorder& recorder, std::string_view name,
                                       bool forward) const {
  Factor& kept = recorder.kept_of_step<Factor>(*this);
  if (!(forward ? kept.plain : kept.transposed))
    kept = quantise(recorder, name, recorder.parameter(weight), formats.values(),
                    {forward, has_backward(recorder)});
  return forward ? kept.plain : kept.transposed;
}

/// The gradient of the result; of a whole one both tensors, for both products that take it.
Product::Factor Product::gradient(Recorder& recorder, std::string_view name,
                                  const SomeRows& dy) const {
  if (is_payload(recorder, dy.whole))
    return {{{dy.whole, 0, dy.rows}, {scale_of(recorder, dy.whole), 1}}, {}};
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
    const Payload left = input(recorder, name, x);
    const std::string of_w = fmt::format("{}_w", name);
    const Payload right = some == Range{}
                              ? whole_weight(recorder, of_w, true)
                              : quantise(recorder, of_w, w, formats.values(), {true, false}).plain;
    return recorder.compute(
        name,
        kernels::Fp8Product{.m = recorder.count(x),
                            .n = recorder.count(w),
                            .k = inputs(),
                            .storage = recorder.storage(),
                            .a = formats.values(),
                            .b = formats.values(),
                            .fast = true},
        {.a = left.bytes, .b = right.bytes, .a_scale = left.scale, .b_scale = right.scale, .c = y});
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
    const Payload left = gradient(recorder, fmt::format("{}_dy", name), dy).plain;
    const Payload right = whole_weight(recorder, fmt::format("{}_w", name), false);
    return recorder.compute(name,
                            kernels::Fp8Product{.m = recorder.count(dy),
                                                .n = inputs(),
                                                .k = outputs(),
                                                .storage = recorder.storage(),
                                                .a = formats.gradients,
                                                .b = formats.values(),
                                                .accumulate = accumulate},
                            {.a = left.bytes,
                             .b = right.bytes,
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

void Product::backward_weight(Recorder& recorder, std::string_view name, Tensor dy,
                              const ProductInput& x, WeightsPosition position) const {
  if (quantised()) {
    const ForWeights record{recorder, position};
    const std::string of_dy = fmt::format("{}_dy", name), of_x = fmt::format("{}_x", name);
    const Payload left = is_payload(recorder, dy) ? transposed(recorder, of_dy, dy, record)
                                                  : gradient(recorder, of_dy, dy).transposed;
    const RoundedInput& kept = recorder.kept<RoundedInput>(*this);
    Payload right;
    if (is_payload(recorder, x.whole))
      right = transposed(recorder, of_x, x.whole, record);
    else if (kept.of == x.whole && kept.factor.transposed)
      right = kept.factor.transposed;
    else
      right = quantise(recorder, of_x, x, formats.values(), {false, true}, record).transposed;
    return record(name,
                  kernels::Fp8Product{.m = outputs(),
                                      .n = inputs(),
                                      .k = recorder.tokens(),
                                      .storage = recorder.storage(),
                                      .a = formats.gradients,
                                      .b = formats.values(),
                                      .sums = true,
                                      .accumulate = recorder.batch().accumulate},
                  {.a = left.bytes,
                   .b = right.bytes,
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
