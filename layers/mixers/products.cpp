#include "layers/mixers/products.hpp"

#include "kernels/linear/linear.hpp"
#include "layers/recording/row_range.hpp"

namespace stowage::layers {

using execution::Range;
using Views = std::span<const execution::View>;

void Product::forward(Recorder& recorder, std::string_view name, const SomeRows& x,
                      const SomeRows& y, Range some) const {
  const std::int64_t columns = some == Range{} ? outputs() : some.end - some.begin;
  const RowRange from(recorder, x), to(recorder, y);
  const RowRange by(recorder, {recorder.parameter(weight), some});
  recorder.compute(
      name,
      kernels::linear_forward_cost(from.count(), columns, inputs(), recorder.storage(), to.dtype()),
      {from.use(Access::read), by.use(Access::read), to.use(Access::write)},
      [from, by, to](execution::Queue& q, Views v) {
        kernels::linear_forward(q, from(v[0]), by(v[1]), to(v[2]));
      });
}

void Product::backward_input(Recorder& recorder, std::string_view name, const SomeRows& dy,
                             const SomeRows& dx, bool accumulate) const {
  const RowRange from(recorder, dy), to(recorder, dx);
  recorder.compute(
      name,
      kernels::linear_backward_input_cost(from.count(), outputs(), inputs(), recorder.storage(),
                                          from.dtype(), accumulate),
      {from.use(Access::read), read(recorder.parameter(weight)),
       to.use(accumulate ? Access::update : Access::write)},
      [from, to, accumulate](execution::Queue& q, Views v) {
        kernels::linear_backward_input(q, from(v[0]), v[1], to(v[2]), accumulate);
      });
}

void Product::backward_weight(Recorder& recorder, std::string_view name, Tensor dy, Tensor x,
                              WeightsPosition position) const {
  const auto dtype = recorder.buffer(dy).dtype;
  const bool accumulate = recorder.batch().accumulate;
  recorder.compute_weights(
      name,
      kernels::linear_backward_weight_cost(recorder.tokens(), outputs(), inputs(),
                                           recorder.storage(), dtype, accumulate),
      {read(dy), read(x), recorder.into(recorder.gradient(weight))},
      [accumulate](execution::Queue& q, Views v) {
        kernels::linear_backward_weight(q, v[0], v[1], v[2], accumulate);
      },
      position);
}

void Product::backward(Recorder& recorder, std::string_view name, Tensor dy, Tensor x,
                       Tensor dx) const {
  const auto dtype = recorder.buffer(dy).dtype;
  const bool accumulate = recorder.batch().accumulate;
  recorder.compute(name,
                   kernels::linear_backward_cost(recorder.tokens(), outputs(), inputs(),
                                                 recorder.storage(), dtype, true, accumulate),
                   {read(dy), read(x), read(recorder.parameter(weight)), update(dx),
                    recorder.into(recorder.gradient(weight))},
                   [accumulate](execution::Queue& q, Views v) {
                     kernels::linear_backward(q, v[0], v[1], v[2], v[3], true, v[4], accumulate);
                   });
}

}  // namespace stowage::layers
