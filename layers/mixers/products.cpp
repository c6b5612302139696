#include "layers/mixers/products.hpp"

#include "kernels/linear/linear.hpp"

namespace stowage::layers {

void Product::forward(Recorder& recorder, std::string_view name, const SomeRows& x,
                      const SomeRows& y, execution::Range some) const {
  const SomeRows w(recorder.parameter(weight), some);
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
  const kernels::LinearBackward product{.rows = recorder.count(x),
                                        .outputs = outputs(),
                                        .inputs = inputs(),
                                        .storage = recorder.storage(),
                                        .result = recorder.buffer(dy).dtype,
                                        .accumulate_dx = true,
                                        .accumulate_dw = recorder.batch().accumulate};
  kernels::LinearBackward of_tokens = product;  // what predictions count with, also of fewer rows
  of_tokens.rows = recorder.tokens();
  recorder.compute(name, product,
                   {.dy = dy,
                    .x = x,
                    .w = recorder.parameter(weight),
                    .dx = dx,
                    .dw = recorder.gradient(weight)},
                   of_tokens.cost());
}

}  // namespace stowage::layers
