#include "kernels/optimizer/global_norm.hpp"

#include <utility>
#include <vector>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/optimizer/global_norm_launch.hpp"
#include "kernels/optimizer/norm_block.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

void global_norm(Queue& queue, std::span<const View> gradients, const View& norm,
                 const View& step_ok, const View& workspace) {
  const Operands operands("global_norm");
  const Dtype dtype = operands.storage(norm, "norm");
  operands.check(norm, "norm", execution::accumulation(dtype), {1});
  operands.check(step_ok, "step_ok", Dtype::int32, {1});
  std::vector<std::pair<Address, std::size_t>> buffers;
  std::int64_t elements = 0;
  for (const View& gradient : gradients) {
    operands.require(operands.storage(gradient, "gradient") == dtype,
                     "a gradient has another dtype than norm");
    buffers.emplace_back(Address(gradient), gradient.buffer().elements());
    elements += gradient.buffer().elements();
  }
  operands.workspace(workspace, global_norm_workspace_bytes(
                                    elements, static_cast<std::int64_t>(gradients.size())));
  run(
      queue, "global_norm", dtype,
      [buffers = std::move(buffers), norm = Address(norm), step_ok = Address(step_ok),
       partials = Address(workspace)]<class S>() {
        using A = Accumulation<S>;
        std::vector<std::span<const A>> spans;
        for (const auto& [address, count] : buffers)
          spans.emplace_back(address.template as<const A>(), count);
        global_norm_ref<A>(spans, norm.as<A>(), step_ok.as<std::int32_t>(), partials.as<double>());
      },
      [&]<class S>(void* stream) {
        std::vector<std::span<const float>> spans;
        for (const View& gradient : gradients)
          spans.emplace_back(gradient.as<const float>(), gradient.buffer().elements());
        return optimizer::launch_global_norm(spans, norm.as<float>(), step_ok.as<std::int32_t>(),
                                             Address(workspace).as<double>(), stream);
      });
}

std::size_t global_norm_workspace_bytes(std::int64_t elements, std::int64_t tensors) {
  // Each tensor ends in a block of its own.
  return static_cast<std::size_t>(elements / kNormBlock + tensors) * sizeof(double);
}

Cost global_norm_cost(std::int64_t elements, Dtype dtype) {
  return {2.0 * static_cast<double>(elements), bytes(elements, dtype)};
}

}  // namespace stowage::kernels
