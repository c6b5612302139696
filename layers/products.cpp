#include "layers/products.hpp"

#include "kernels/linear/linear.hpp"

namespace stowage::layers {

using Views = std::span<const execution::View>;

void Product::forward(Recorder& recorder, std::string_view name, Tensor x, Tensor y) const {
  const auto dtype = recorder.program().info(y).buffers[0].dtype;
  recorder.compute(
      name,
      kernels::linear_forward_cost(recorder.tokens(), outputs(), inputs(), recorder.storage(),
                                   dtype),
      {read(x), read(recorder.parameter(weight)), write(y)},
      [](execution::Queue& q, Views v) { kernels::linear_forward(q, v[0], v[1], v[2]); });
}

void Product::backward_input(Recorder& recorder, std::string_view name, Tensor dy, Tensor dx,
                             bool accumulate) const {
  const auto dtype = recorder.program().info(dy).buffers[0].dtype;
  recorder.compute(
      name,
      kernels::linear_backward_input_cost(recorder.tokens(), outputs(), inputs(),
                                          recorder.storage(), dtype, accumulate),
      {read(dy), read(recorder.parameter(weight)), accumulate ? update(dx) : write(dx)},
      [accumulate](execution::Queue& q, Views v) {
        kernels::linear_backward_input(q, v[0], v[1], v[2], accumulate);
      });
}

void Product::backward_weight(Recorder& recorder, std::string_view name, Tensor dy,
                              Tensor x) const {
  const auto dtype = recorder.program().info(dy).buffers[0].dtype;
  const bool accumulate = recorder.batch().accumulate;
  recorder.compute_weights(
      name,
      kernels::linear_backward_weight_cost(recorder.tokens(), outputs(), inputs(),
                                           recorder.storage(), dtype, accumulate),
      {read(dy), read(x), recorder.into(recorder.gradient(weight))},
      [accumulate](execution::Queue& q, Views v) {
        kernels::linear_backward_weight(q, v[0], v[1], v[2], accumulate);
      });
}

void Product::backward(Recorder& recorder, std::string_view name, Tensor dy, Tensor x,
                       Tensor dx) const {
  const auto dtype = recorder.program().info(dy).buffers[0].dtype;
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
