#include "kernels/optimizer/adamw.hpp"

#include <utility>
#include <vector>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/optimizer/adamw_launch.hpp"
#include "kernels/optimizer/advance.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

// The addresses of one tensor.
struct Addresses {
  explicit Addresses(const AdamwTensor& tensor)
      : parameter(tensor.parameter),
        master(tensor.master),
        gradient(tensor.gradient),
        m(tensor.m),
        v(tensor.v),
        elements(tensor.elements),
        decay(tensor.decay) {}

  template <class S>
  AdamwPointers<S> as() const {
    using A = Accumulation<S>;
    return {parameter.as<S>(), master.as<A>(), gradient.as<const A>(), m.as<A>(), v.as<A>(),
            elements,          decay};
  }

  Address parameter, master, gradient, m, v;
  std::int64_t elements;
  bool decay;
};

void check(const Operands& operands, const AdamwTensor& tensor, Dtype storage) {
  operands.require(tensor.elements >= 0, "a tensor without its number of elements");
  const auto check_buffer = [&](const View& view, std::string_view operand, Dtype dtype) {
    operands.require(operands.storage(view, operand) == dtype,
                     fmt::format("{} is {}, not {}", operand, execution::name(view.dtype()),
                                 execution::name(dtype)));
    operands.require(view.buffer().elements() >= tensor.elements,
                     fmt::format("{} has {} elements of the {} to update", operand,
                                 view.buffer().elements(), tensor.elements));
  };
  const Dtype sums = execution::accumulation(storage);
  check_buffer(tensor.parameter, "parameter", storage);
  if (tensor.master) check_buffer(tensor.master, "master", sums);
  check_buffer(tensor.gradient, "gradient", sums);
  check_buffer(tensor.m, "m", sums);
  check_buffer(tensor.v, "v", sums);
}

}  // namespace

void adamw(Queue& queue, std::span<const AdamwTensor> tensors, const View& schedule,
           const View& step, const View& norm, double clip, const View& step_ok,
           const AdamwOptions& options) {
  if (tensors.empty()) return;
  const Operands operands("adamw");
  const Dtype storage = operands.storage(tensors[0].parameter, "parameter");
  operands.check(schedule, "schedule", execution::accumulation(storage), {2});
  operands.check(step, "step", Dtype::int64, {1});
  operands.check(norm, "norm", execution::accumulation(storage), {1});
  operands.check(step_ok, "step_ok", Dtype::int32, {1});
  std::vector<Addresses> addresses;
  for (const AdamwTensor& tensor : tensors) {
    check(operands, tensor, storage);
    addresses.emplace_back(tensor);
  }
  run(
      queue, "adamw", storage,
      [=, addresses = std::move(addresses), schedule = Address(schedule), step = Address(step),
       norm = Address(norm), step_ok = Address(step_ok)]<class S>() {
        using A = Accumulation<S>;
        if (*step_ok.as<const std::int32_t>() == 0) return;
        const AdamwStep<A> common =
            make_adamw_step(schedule.as<const A>(), *step.as<const std::int64_t>(),
                            *norm.as<const A>(), clip, options);
        for (const Addresses& tensor : addresses) adamw_ref(tensor.as<S>(), common);
      },
      [&]<class S>(void* stream) {
        std::vector<AdamwPointers<S>> pointers;
        for (const AdamwTensor& tensor : tensors) pointers.push_back(Addresses(tensor).as<S>());
        return optimizer::launch_adamw<S>(
            pointers,
            {schedule.as<const float>(), step.as<const std::int64_t>(), norm.as<const float>(),
             step_ok.as<const std::int32_t>(), clip, options},
            stream);
      });
}

void advance(Queue& queue, const View& step, const View& step_ok) {
  const Operands operands("advance");
  operands.check(step, "step", Dtype::int64, {1});
  operands.check(step_ok, "step_ok", Dtype::int32, {1});
  execution::parallel_for(
      queue, 1, detail::Advance{step.as<std::int64_t>(), step_ok.as<const std::int32_t>()});
}

// Gradient read; parameter or master, m and v read and written; with a master, parameter written.
Cost adamw_cost(std::int64_t elements, Dtype storage, bool master) {
  const Dtype sums = execution::accumulation(storage);
  const double update =
      master ? 2 * bytes(elements, sums) + bytes(elements, storage) : 2 * bytes(elements, storage);
  return {15.0 * static_cast<double>(elements), 5 * bytes(elements, sums) + update};
}

}  // namespace stowage::kernels
