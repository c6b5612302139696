// Tensors of a payload and a scale: ranges are of the payload, the scale is used whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "execution/executor.hpp"
#include "execution/verifier.hpp"
#include "offload/planner.hpp"

namespace stowage::ctest {
namespace {

using namespace execution;

constexpr std::int64_t kWidth = 1000;
constexpr Range kHalves[] = {{0, kWidth / 2}, {kWidth / 2, kWidth}};

TensorInfo quantised(std::string name, Lifetime lifetime, std::string module = {}) {
  TensorInfo info = one_buffer(std::move(name), Dtype::int32, {kWidth}, lifetime, module);
  info.buffers.push_back({"scale", Dtype::fp32, {1}});
  return info;
}

void append(Program& program, std::string name, std::vector<Use> uses,
            std::function<void(const std::vector<View>&)> body, Lane lane = Lane::compute) {
  Op op;
  op.name = std::move(name);
  op.lane = lane;
  op.uses = std::move(uses);
  op.launch = [body = std::move(body)](Queue& queue, std::span<const View> views) {
    queue.enqueue([body, all = std::vector<View>(views.begin(), views.end())] { body(all); });
  };
  program.append(std::move(op));
}

/// Integers and the scale that they are to be multiplied by, of x.
void quantise(const float* x, const View& q) {
  const float scale = *std::max_element(x, x + kWidth) / 127;
  q.as<float>(1)[0] = scale;
  for (std::int64_t i = 0; i < kWidth; ++i)
    q.as<std::int32_t>()[i] = static_cast<std::int32_t>(x[i] / scale);
}

/// y = x rounded, read from what is saved for backward, in parts or at once.
struct Rounding {
  Program program{"rounding"};
  PersistentLayout layout;
  Tensor x, q, y;
  ExecutorCounters issued;

  explicit Rounding(const std::vector<Range>& parts) {
    layout.close();
    program.begin_section("all");
    x = program.input("x", Dtype::fp32, {kWidth});
    y = program.output("y", Dtype::fp32, {kWidth});
    {
      const auto layer = program.enter("layer", 0, 0);
      q = program.add(quantised("q", Lifetime::saved, "mlp_act"));
      append(program, "quantise", {{x, Access::read}, {q, Access::write}},
             [](const std::vector<View>& v) { quantise(v[0].as<float>(), v[1]); });
    }
    const auto layer = program.enter("layer", 0, 0, true);
    for (const Range& part : parts)
      append(program, "values/" + std::to_string(part.begin),
             {{q, Access::read, part}, {y, Access::write, part}}, [](const std::vector<View>& v) {
               for (std::int64_t i = 0; i < v[1].extent(0); ++i)
                 v[1].as<float>()[i] =
                     v[0].as<float>(1)[0] * static_cast<float>(v[0].as<std::int32_t>()[i]);
             });
    program.finish();
  }

  /// What it makes of two inputs, one after the other, on a plan that is proved.
  std::vector<float> run(const offload::Policy& policy, bool audit = false) {
    const std::size_t alignment = audit ? 4096 : kAlignment;
    const Plan plan =
        offload::make_plan(program, layout, {.alignment = alignment, .policy = policy});
    const auto backend = make_host_backend();
    Device device(*backend, layout, plan.bytes[1], plan.bytes[2]);
    Executor executor(program, plan, device, {.ring_slots = 2, .audit = audit});
    std::vector<float> made;
    for (const float factor : {0.5F, 3.0F}) {
      std::vector<float> values(kWidth);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = factor * static_cast<float>(i);
      std::memcpy(executor.stage(x).data(), values.data(), sizeof(float) * values.size());
      executor.step();
      const auto* result = reinterpret_cast<const float*>(executor.result(y).data());
      made.insert(made.end(), result, result + kWidth);
    }
    issued = executor.counters();
    return made;
  }
};

TEST(quantised_ranges, are_read_with_the_scale_of_the_whole) {
  offload::Policy keeps, offloads, reruns;
  offloads.kind = reruns.kind = offload::Policy::Kind::manual;
  offloads.offload = reruns.recompute = {{"mlp_act", {"mlp_act"}}};
  offloads.min_tensor_bytes = reruns.min_tensor_bytes = 0;
  offloads.keep_exposed = false;
  const std::vector<float> whole = Rounding(std::vector<Range>(1)).run(keeps);
  EXPECT_FLOAT_EQ(whole[kWidth - 1], 0.5F * (kWidth - 1));
  EXPECT_FLOAT_EQ(whole[2 * kWidth - 1], 3.0F * (kWidth - 1));
  for (const offload::Policy& policy : {keeps, offloads, reruns}) {
    Rounding in_parts({kHalves[0], kHalves[1]});
    EXPECT_EQ(in_parts.run(policy), whole);
    EXPECT_EQ(in_parts.issued.copies_in > 0, !policy.offload.empty());
    EXPECT_EQ(in_parts.issued.reruns > 0, !policy.recompute.empty());
  }
  EXPECT_EQ(Rounding({kHalves[1], kHalves[0]}).run(keeps, true), whole) << "as each op declares";
}

/// Two ops of two lanes that write a half each of one tensor, which a third reads.
struct Halves {
  Program program{"halves"};
  PersistentLayout layout;
  Plan plan;

  explicit Halves(TensorInfo info) {
    layout.close();
    program.begin_section("all");
    const Tensor y = program.output("y", Dtype::int32, {1});
    const Tensor tensor = program.add(std::move(info));
    const auto nothing = [](const std::vector<View>&) {};
    append(program, "first", {{tensor, Access::write, kHalves[0]}}, nothing);
    append(program, "second", {{tensor, Access::write, kHalves[1]}}, nothing, Lane::comm);
    append(program, "both", {{tensor, Access::read}, {y, Access::write}}, nothing);
    program.finish();
    plan = offload::make_plan(program, layout);
  }

  Step& step(const std::string& name) {
    return *std::ranges::find_if(plan.steps, [&](const Step& step) {
      return step.op >= 0 && program.ops()[step.op].name == name;
    });
  }
  bool is_ordered() {
    const std::vector<int>& waits = step("second").waits;
    return std::ranges::find(waits, step("first").records) != waits.end();
  }
  std::vector<std::string> faults() const {
    const PlannedProgram planned{&program, &plan};
    return verify({&planned, 1});
  }
};

TEST(quantised_ranges, writers_of_two_are_ordered_by_the_scale) {
  Halves plain(one_buffer("q", Dtype::int32, {kWidth}, Lifetime::scratch));
  EXPECT_FALSE(plain.is_ordered());
  EXPECT_EQ(plain.faults(), std::vector<std::string>{});

  Halves scaled(quantised("q", Lifetime::scratch));
  EXPECT_TRUE(scaled.is_ordered());
  EXPECT_EQ(scaled.faults(), std::vector<std::string>{});
  std::erase(scaled.step("second").waits, scaled.step("first").records);
  ASSERT_FALSE(scaled.faults().empty());
  EXPECT_NE(scaled.faults().front().find("second writes q over bytes of q that"), std::string::npos)
      << scaled.faults().front();
}

}  // namespace
}  // namespace stowage::ctest
