#include "layers/recorder.hpp"

#include <fmt/core.h>

#include "kernels/elementwise/elementwise.hpp"

namespace stowage::layers {

std::string Recorder::full_name(std::string_view name) const {
  return fmt::format("mb{}/{}/{}", batch_.slot, prefix_, name);
}

Tensor Recorder::saved(std::string_view name, std::vector<std::int64_t> shape,
                       std::string_view module) {
  return saved(name, storage(), std::move(shape), module);
}

Tensor Recorder::saved(std::string_view name, execution::Dtype dtype,
                       std::vector<std::int64_t> shape, std::string_view module) {
  return program_.saved(full_name(name), dtype, std::move(shape), std::string(module));
}

Tensor Recorder::scratch(std::string_view name, std::vector<std::int64_t> shape) {
  return scratch(name, storage(), std::move(shape));
}

Tensor Recorder::scratch(std::string_view name, execution::Dtype dtype,
                         std::vector<std::int64_t> shape) {
  return program_.scratch(full_name(name), dtype, std::move(shape));
}

Tensor Recorder::workspace(std::string_view name, std::size_t bytes) {
  const auto count = static_cast<std::int64_t>(bytes == 0 ? 1 : bytes);
  return scratch(name, execution::Dtype::uint8, {count});
}

Tensor Recorder::parameter(const Parameter& parameter) {
  return program_.add(execution::one_buffer(parameter.name, storage(), parameter.local_shape(),
                                            execution::Lifetime::parameter));
}

Tensor Recorder::gradient(const Parameter& parameter) {
  return program_.add(execution::one_buffer(gradient_name(parameter.name), accumulation(),
                                            parameter.local_shape(),
                                            execution::Lifetime::gradient));
}

void Recorder::compute(std::string_view name, Cost cost, std::vector<Use> uses, Launch launch) {
  append(name, cost, std::move(uses), std::move(launch), false);
}

void Recorder::add(std::string_view name, Tensor x, Tensor onto) {
  compute(name, kernels::add_cost(program_.info(x).buffers.front().elements(), storage()),
          {read(x), update(onto)}, [](execution::Queue& q, std::span<const execution::View> v) {
            kernels::add(q, v[1], v[0], v[1]);
          });
}

void Recorder::rerun_only(std::string_view name, Cost cost, std::vector<Use> uses, Launch launch) {
  append(name, cost, std::move(uses), std::move(launch), true);
}

void Recorder::append(std::string_view name, Cost cost, std::vector<Use> uses, Launch launch,
                      bool only_rerun) {
  execution::Op op;
  op.name = full_name(name);
  op.uses = std::move(uses);
  op.cost = cost;
  op.launch = std::move(launch);
  op.only_rerun = only_rerun;
  program_.append(std::move(op));
}

}  // namespace stowage::layers
