// Products of 8 bits whose rows several ranks have: what they gather is a payload, and all results
// have the bits of a rank that has all rows and rounds them itself.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "execution/executor.hpp"
#include "layers/mixers/products.hpp"
#include "offload/planner.hpp"
#include "parallel/transport/connect.hpp"
#include "parallel/transport/host_transport.hpp"

namespace stowage::ctest {
namespace {

using execution::Bf16;
using execution::Dtype;
using execution::Tensor;
using layers::AllRows;
using layers::Product;
using layers::RowBlock;
using layers::SharedRows;

constexpr std::int64_t kRows = 16, kInputs = 48, kOutputs = 32;

/// Of an element: rows of a rank are 2^9 of those of the rank before, so that a scale of the rows
/// of one rank alone rounds them to other values.
Bf16 value(std::int64_t row, std::int64_t column) {
  const double phase = std::sin(0.7 * static_cast<double>(row) + 1.3 * static_cast<double>(column));
  return Bf16(std::ldexp(phase, static_cast<int>(9 * (row / kRows))));
}

layers::Parameter weight(const char* name) {
  return {name, {kOutputs, kInputs}, layers::Init::normal, true};
}

/// A product of all ranks, and the same by each of them alone.
struct Shared {
  parallel::Communicator world = parallel::Communicator::world();
  parallel::Ranks ranks = parallel::connect(world, parallel::fit_grid(world.size(), world.size()),
                                            parallel::make_host_transport);
  SharedRows rows{ranks.shared_group(parallel::Group::tensor)};
  std::int64_t all_rows = kRows * world.size();
  Product product, alone;
  execution::PersistentLayout layout;
  std::unique_ptr<execution::Program> program;
  Tensor x, x_all, dy, dy_all;
  Tensor y, dx, y_alone, dx_alone;

  explicit Shared(const layers::ProductPrecision& precision, Dtype gradients)
      : product{weight("w"), {&precision, gradients}}, alone{weight("v"), {&precision, gradients}} {
    layout.open_bucket("parameter/dense/0", "dense", Dtype::bf16);
    for (const Product* of : {&product, &alone})
      layout.add(execution::one_buffer(of->weight.name, Dtype::bf16, of->weight.shape,
                                       execution::Lifetime::parameter));
    layout.open_bucket("gradient/dense/0", "dense", Dtype::fp32);
    for (const Product* of : {&product, &alone})
      layout.add(execution::one_buffer(layers::gradient_name(of->weight.name), Dtype::fp32,
                                       of->weight.shape, execution::Lifetime::gradient));
    layout.close();
    record();
  }

  void record() {
    program = std::make_unique<execution::Program>("products", &layout);
    program->begin_section("all");
    x = program->input("x", Dtype::bf16, {kRows, kInputs});
    x_all = program->input("x_all", Dtype::bf16, {all_rows, kInputs});
    dy = program->input("dy", Dtype::bf16, {kRows, kOutputs});
    dy_all = program->input("dy_all", Dtype::bf16, {all_rows, kOutputs});
    y = program->output("y", Dtype::bf16, {all_rows, kOutputs});
    dx = program->output("dx", Dtype::bf16, {all_rows, kInputs});
    y_alone = program->output("y_alone", Dtype::bf16, {all_rows, kOutputs});
    dx_alone = program->output("dx_alone", Dtype::bf16, {all_rows, kInputs});
    layers::Batch batch;
    batch.sequence_tokens = batch.tokens_count = all_rows;
    batch.rows_count = kRows;
    batch.loss_scale = x;  // there is a backward
    layers::Handles handles;
    layers::Recorder recorder(*program, {Dtype::bf16}, batch, handles);
    forward(recorder);
    backward(recorder);
    program->finish();
  }

  void forward(layers::Recorder& recorder) {
    const auto layer = program->enter("layer", 0, 0);
    normed = layers::saved(recorder, product.rounding(), "normed", {kRows, kInputs}, "mlp_fc1");
    recorder.copy("norm", layers::read(x), layers::write(normed));
    const AllRows all =
        rows.gather_others(recorder, "x", product.shared_input(recorder, "x", normed, rows));
    for (const RowBlock& some : all.blocks)
      product.forward(recorder, "fc1" + some.suffix, all.of(some), {y, some.rows});
    alone.forward(recorder, "alone", x_all, y_alone);
  }

  void backward(layers::Recorder& recorder) {
    const auto layer = program->enter("layer", 0, 0, true);
    const AllRows all =
        rows.gather_each(recorder, "dy", product.shared_gradient(recorder, "dy", dy, rows));
    const Tensor again =
        rows.gather(recorder, "x_again", product.shared_input(recorder, "x_again", normed, rows));
    for (const RowBlock& some : all.blocks)
      product.backward_input(recorder, "fc1_backward" + some.suffix, all.of(some), {dx, some.rows});
    product.backward_weight(recorder, "fc1_weight_backward", all.all, again);
    alone.backward_input(recorder, "alone_backward", dy_all, dx_alone);
    alone.backward_weight(recorder, "alone_weight_backward", dy_all, x_all);
  }

  Tensor normed;
};

/// Stages rows from `first` on; a value of the first row may be another.
void stage(execution::Executor& executor, Tensor tensor, std::int64_t first, float at_first) {
  const auto& shape = executor.program().info(tensor).buffers.front().shape;
  std::vector<Bf16> values;
  for (std::int64_t i = first; i < first + shape[0]; ++i)
    for (std::int64_t j = 0; j < shape[1]; ++j)
      values.push_back(i == 0 && j == 0 ? Bf16(at_first) : value(i, j));
  std::memcpy(executor.stage(tensor).data(), values.data(), values.size() * sizeof(Bf16));
}

std::vector<std::byte> result(execution::Executor& executor, Tensor tensor) {
  const std::span<const std::byte> bytes = executor.result(tensor);
  return {bytes.begin(), bytes.end()};
}

std::vector<float> gradient(execution::Device& device, const std::string& parameter) {
  std::vector<float> values(kOutputs * kInputs);
  device.read(layers::gradient_name(parameter), std::as_writable_bytes(std::span(values)));
  return values;
}

/// @param at_first the first element of the rows of rank 0
execution::ExecutorCounters check(const Shared& shared, const offload::Policy& policy = {},
                                  float at_first = 0.5F) {
  const execution::Plan plan =
      offload::make_plan(*shared.program, shared.layout, {.policy = policy});
  const auto backend = execution::make_host_backend();
  execution::Device device(*backend, shared.layout, plan.bytes[1], plan.bytes[2]);
  parallel::attach(shared.ranks, device.device_arena());
  std::vector<Bf16> weights;
  for (std::int64_t i = 0; i < kOutputs * kInputs; ++i) weights.push_back(value(i % 13, i % 11));
  for (const char* name : {"w", "v"}) device.write(name, std::as_bytes(std::span(weights)));
  execution::Executor executor(*shared.program, plan, device, {});
  const std::int64_t first = shared.world.rank() * kRows;
  stage(executor, shared.x, first, at_first);
  stage(executor, shared.x_all, 0, at_first);
  stage(executor, shared.dy, first, at_first);
  stage(executor, shared.dy_all, 0, at_first);
  executor.step();
  EXPECT_EQ(result(executor, shared.y), result(executor, shared.y_alone));
  EXPECT_EQ(result(executor, shared.dx), result(executor, shared.dx_alone));
  const std::vector<float> together = gradient(device, "w"), own = gradient(device, "v");
  if (std::isfinite(at_first)) {
    EXPECT_EQ(together, own);
  }
  for (const float some : together) EXPECT_EQ(std::isnan(some), !std::isfinite(at_first));
  return executor.counters();
}

constexpr layers::ProductPrecision kAgain{"fp8_again", "rounded again", Dtype::e4m3, false, 89};

TEST(shared_products, gathered_payloads_have_the_bits_of_one_rank) {
  for (const Dtype gradients : {Dtype::e4m3, Dtype::e5m2})
    for (const layers::ProductPrecision* precision : {&layers::kProductsOf8Bits, &kAgain})
      check(Shared(*precision, gradients));
}

TEST(shared_products, what_is_not_finite_on_one_rank_shows_on_all) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kNan, kInfinity})
    check(Shared(layers::kProductsOf8Bits, Dtype::e4m3), {}, bad);
}

// One byte an element, and one number of each rank.
TEST(shared_products, ranks_exchange_and_save_bytes) {
  const Shared shared(layers::kProductsOf8Bits, Dtype::e5m2);
  double bytes = 0;
  for (const execution::Op& op : shared.program->ops())
    if (op.communication) bytes += op.cost.bytes;
  const auto others = static_cast<double>(shared.world.size() - 1);
  EXPECT_EQ(bytes, others * (kRows * (2 * kInputs + kOutputs) + 2 * sizeof(float)));
  std::size_t saved = 0;
  for (const execution::TensorInfo& info : shared.program->tensors())
    if (info.module == "mlp_fc1") saved += info.bytes();
  // All of x by what is computed alone: that has no module.
  EXPECT_EQ(saved, kRows * kInputs + sizeof(float));
}

// Recomputed from what is kept, the payload has the scale of all ranks.
TEST(shared_products, payloads_leave_and_are_made_again) {
  const Shared shared(layers::kProductsOf8Bits, Dtype::e4m3);
  offload::Policy offloads, reruns;
  offloads.kind = reruns.kind = offload::Policy::Kind::manual;
  offloads.offload = reruns.recompute = {{"mlp_fc1", {"mlp_fc1"}}};
  offloads.min_tensor_bytes = reruns.min_tensor_bytes = 0;
  offloads.keep_exposed = false;
  for (const offload::Policy& policy : {offloads, reruns}) {
    const execution::ExecutorCounters counters = check(shared, policy);
    EXPECT_EQ(counters.copies_in > 0, !policy.offload.empty());
    EXPECT_EQ(counters.reruns > 0, !policy.recompute.empty());
  }
}

}  // namespace
}  // namespace stowage::ctest
