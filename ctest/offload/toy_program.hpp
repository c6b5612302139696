#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "execution/error.hpp"
#include "execution/persistent.hpp"
#include "execution/program.hpp"

namespace stowage::ctest {

using namespace execution;

/// A training step of scalars: forward y_i = w * y_{i-1} + x on fp32 vectors, backward with saved
/// activations, a gradient sum on the comm lane, an update. Small, but it has every kind of tensor,
/// every lane and a repeating section.
struct Toy {
  /// Whether what is saved has leading rows, and whether their number changes before backward,
  /// which no program may do.
  enum class Rows : unsigned char { all, counted, counted_again };

  static constexpr std::int64_t kWidth = 700;
  int layers = 4;
  Program program{"toy"};
  PersistentLayout layout;
  Tensor x, sum, weight, gradient;

  explicit Toy(int microbatches = 1, int depth = 4, Rows rows = Rows::all)
      : layers(depth), rows_(rows) {
    const std::vector<std::int64_t> shape{kWidth};
    const TensorInfo w = one_buffer("weight", Dtype::fp32, shape, Lifetime::parameter);
    const TensorInfo g = one_buffer("gradient", Dtype::fp32, shape, Lifetime::gradient);
    layout.open_bucket("parameter", "dense", Dtype::fp32);
    layout.add(w);
    layout.open_bucket("gradient", "dense", Dtype::fp32);
    layout.add(g);
    layout.close();
    program.begin_section("prologue");
    x = program.input("x", Dtype::fp32, shape);
    sum = program.output("sum", Dtype::fp32, {1});
    weight = program.add(w);
    gradient = program.add(g);
    record_section("first", 1, 0);
    if (microbatches > 2) record_section("body", microbatches - 2, 1);
    if (microbatches > 1) record_section("last", 1, 2);
    record_epilogue();
    program.finish();
  }

 private:
  static void append(Program& p, std::string name, Lane lane, std::vector<Use> uses,
                     std::function<void(std::span<float* const>)> body) {
    Op op;
    op.name = std::move(name);
    op.lane = lane;
    op.uses = std::move(uses);
    op.launch = [body](Queue& queue, std::span<const View> views) {
      std::vector<float*> data;
      for (const View& view : views) data.push_back(view.as<float>());
      queue.enqueue([body, data] { body(data); });
    };
    p.append(std::move(op));
  }

  void record_section(const char* name, int repeat, int slot) {
    program.begin_section(name, repeat);
    const std::vector<std::int64_t> shape{kWidth};
    std::vector<Tensor> saved{x};
    const Tensor count = record_count(slot);
    for (int i = 0; i < layers; ++i) {
      const std::string at = std::to_string(slot) + "/" + std::to_string(i);
      const auto scope = program.enter("layer", i, slot);
      TensorInfo y = one_buffer("y" + at, Dtype::fp32, shape, Lifetime::saved, "mlp_act");
      y.rows = {count, kWidth / kCountedRoom};
      saved.push_back(program.add(y));
      append(program, "forward" + at, Lane::compute,
             {{saved[saved.size() - 2], Access::read},
              {weight, Access::read},
              {saved.back(), Access::write}},
             [](std::span<float* const> d) {
               for (int k = 0; k < kWidth; ++k) d[2][k] = 0.5F * d[1][k] * d[0][k] + 1;
             });
    }
    if (rows_ == Rows::counted_again) count_rows("recount", count, Access::update);
    Tensor dy = saved.back();
    for (int i = layers; i-- > 0;) {
      const std::string at = std::to_string(slot) + "/" + std::to_string(i);
      const auto scope = program.enter("layer", i, slot, true);
      const Tensor dx = program.scratch("dx" + at, Dtype::fp32, shape);
      append(program, "backward" + at, Lane::compute,
             {{dy, Access::read},
              {saved[i], Access::read},
              {weight, Access::read},
              {dx, Access::write}},
             [](std::span<float* const> d) {
               for (int k = 0; k < kWidth; ++k) d[3][k] = 0.5F * d[2][k] * d[0][k] - d[1][k];
             });
      dy = dx;
    }
    const bool first = slot == 0;
    append(program, "gradient" + std::to_string(slot), Lane::compute,
           {{dy, Access::read}, {gradient, first ? Access::write : Access::update}},
           [first](std::span<float* const> d) {
             for (int k = 0; k < kWidth; ++k) d[1][k] = d[0][k] + (first ? 0 : d[1][k]);
           });
  }

  /// The number of rows that a microbatch fills; none if it fills all.
  Tensor record_count(int slot) {
    if (rows_ == Rows::all) return {};
    const Tensor count =
        program.saved("count" + std::to_string(slot), Dtype::int32, {1}, std::string());
    count_rows("count", count, Access::write);
    return count;
  }

  void count_rows(const std::string& name, Tensor count, Access access) {
    append(program, name + "/" + program.info(count).name, Lane::compute, {{count, access}},
           [](std::span<float* const> d) { *reinterpret_cast<std::int32_t*>(d[0]) = kWidth; });
  }

  Rows rows_;

  void record_epilogue() {
    program.begin_section("epilogue");
    append(program, "all_reduce", Lane::comm, {{gradient, Access::update}},
           [](std::span<float* const> d) {
             for (int k = 0; k < kWidth; ++k) d[0][k] *= 1.5F;
           });
    append(program, "update", Lane::compute,
           {{gradient, Access::read}, {weight, Access::update}, {sum, Access::write}},
           [](std::span<float* const> d) {
             for (int k = 0; k < kWidth; ++k) d[1][k] -= 1e-3F * d[0][k];
             d[2][0] = std::accumulate(d[1], d[1] + kWidth, 0.0F);
           });
  }
};

}  // namespace stowage::ctest
