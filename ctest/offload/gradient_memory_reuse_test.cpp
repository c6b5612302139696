// Kept tensors in the memory of gradients that are written later.
#include "offload/gradient_memory_reuse.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "execution/error.hpp"
#include "execution/verifier.hpp"
#include "offload/planner.hpp"

namespace stowage::ctest {
namespace {

using namespace execution;
using offload::PlannerOptions;
using offload::Policy;

constexpr std::int64_t kMiB = 1 << 20;

Op make_op(std::string name, std::vector<Use> uses) {
  Op op;
  op.name = std::move(name);
  op.uses = std::move(uses);
  op.cost.flops = 1e9;
  op.launch = [](Queue&, std::span<const View>) {};
  return op;
}

/// Layers that each save 1 MiB and have a gradient of 2 MiB and one of 64 bytes, with padding.
struct Layers {
  Program program{"layers"};
  PersistentLayout layout;
  std::vector<Tensor> saved;
  Tensor tiny;  ///< saved by the first layer, read after the reduction if there is one

  explicit Layers(int layers = 6, int repeat = 1, Access gradients = Access::write,
                  bool reduce = false) {
    lay_out(layers);
    if (reduce) program = Program("layers", &layout);
    program.begin_section("only", repeat);
    for (int i = 0; i < layers; ++i) forward(i);
    for (int i = layers; i-- > 0;) backward(i, gradients);
    if (reduce) all_reduce();
    program.begin_section("end");
    program.finish();
  }

  static TensorInfo gradient(const std::string& name, std::int64_t elements) {
    return one_buffer(name, Dtype::fp32, {elements}, Lifetime::gradient);
  }
  void lay_out(int layers) {
    layout.open_bucket("parameter", "dense", Dtype::fp32);
    layout.add(one_buffer("w", Dtype::fp32, {kMiB}, Lifetime::parameter));
    layout.open_bucket("gradient", "dense", Dtype::fp32);
    for (int i = layers; i-- > 0;) {
      layout.add(gradient("big" + std::to_string(i), kMiB / 2));
      layout.add(gradient("small" + std::to_string(i), 16));
    }
    layout.close();
  }
  void forward(int i) {
    const auto scope = program.enter("layer", i, 0);
    const std::string at = std::to_string(i);
    saved.push_back(program.saved("y" + at, Dtype::uint8, {kMiB}, "mlp_act"));
    std::vector<Use> uses{{program.add(layout.info("w")), Access::read}};
    if (i > 0) uses.push_back({saved[static_cast<std::size_t>(i) - 1], Access::read});
    uses.push_back({saved.back(), Access::write});
    if (i == 0) {
      tiny = program.saved("tiny", Dtype::uint8, {kAlignment}, "mlp_norm");
      uses.push_back({tiny, Access::write});
    }
    append("forward" + at, std::move(uses));
  }
  void backward(int i, Access gradients) {
    const auto scope = program.enter("layer", i, 0, true);
    const std::string at = std::to_string(i);
    append("backward" + at, {{saved[i], Access::read},
                             {program.add(layout.info("big" + at)), gradients},
                             {program.add(layout.info("small" + at)), gradients}});
  }
  void all_reduce() {
    Op op;
    op.name = "all_reduce";
    op.lane = Lane::comm;
    op.communication = Communication{"all_reduce", "dense", {0, 1}, kMiB, Dtype::fp32, "sum", {}};
    op.uses = program.uses(program.find("gradient"), {}, Access::update);
    op.launch = [](Queue&, std::span<const View>) {};
    program.append(std::move(op));
    const auto scope = program.enter("layer", 0, 0, true);
    append("late", {{tiny, Access::read}, {program.find("big0"), Access::read}});
  }
  void append(std::string name, std::vector<Use> uses) {
    program.append(make_op(std::move(name), std::move(uses)));
  }

  offload::GradientMemoryReuse reuse() const { return {program, layout, saved, kAlignment}; }
  Plan plan(bool reuse, std::int64_t transient) const {
    PlannerOptions options;
    options.policy.kind = Policy::Kind::automatic;
    options.policy.reuse_gradient_memory = reuse;
    options.policy.device_budget_bytes = static_cast<std::int64_t>(layout.bytes()) + transient;
    return offload::make_plan(program, layout, options);
  }
  std::vector<std::string> faults(const Plan& plan) const {
    const PlannedProgram planned{&program, &plan};
    return verify({&planned, 1});
  }
};

/// Layers that each save `a`, and `b` made from it and listed to be computed again. Backward reads
/// a, writes the gradient that a fits into, and only then needs b: its rerun reads a late.
struct LateReaders {
  static constexpr int kLayers = 6;
  Program program{"late"};
  PersistentLayout layout;

  LateReaders() {
    layout.open_bucket("gradient", "dense", Dtype::fp32);
    for (int i = kLayers; i-- > 0;)
      layout.add(Layers::gradient("big" + std::to_string(i), kMiB / 2));
    layout.close();
    program.begin_section("only");
    Tensor x = saved("x0", kAlignment);
    append("embed", {{x, Access::write}});
    for (int i = 0; i < kLayers; ++i) x = forward(i, x);
    for (int i = kLayers; i-- > 0;) backward(i);
    program.finish();
  }

  Tensor saved(const std::string& name, std::int64_t bytes) {
    return program.saved(name, Dtype::uint8, {bytes}, std::string(1, name[0]));
  }
  Tensor forward(int i, Tensor x) {
    const auto scope = program.enter("layer", i, 0);
    const std::string at = std::to_string(i);
    const Tensor a = saved("a" + at, kMiB);
    const Tensor b = saved("b" + at, kMiB);
    const Tensor next = saved("x" + std::to_string(i + 1), kAlignment);
    append("make_a" + at, {{x, Access::read}, {a, Access::write}});
    append("make_b" + at, {{a, Access::read}, {b, Access::write}});
    append("make_x" + at, {{b, Access::read}, {next, Access::write}});
    return next;
  }
  void backward(int i) {
    const auto scope = program.enter("layer", i, 0, true);
    const std::string at = std::to_string(i);
    append("read_a" + at, {{program.find("a" + at), Access::read}});
    append("store" + at, {{program.find("x" + std::to_string(i + 1)), Access::read},
                          {program.add(layout.info("big" + at)), Access::write}});
    append("read_b" + at,
           {{program.find("b" + at), Access::read}, {program.find("x" + at), Access::read}});
  }
  void append(std::string name, std::vector<Use> uses) {
    program.append(make_op(std::move(name), std::move(uses)));
  }

  Plan plan(bool reuse, std::int64_t transient, offload::Choice& choice) const {
    PlannerOptions options;
    options.policy.kind = Policy::Kind::automatic;
    options.policy.reuse_gradient_memory = reuse;
    options.policy.recompute = {{"b", {"b"}}};
    options.policy.device_budget_bytes = static_cast<std::int64_t>(layout.bytes()) + transient;
    return offload::make_plan(program, layout, options, &choice);
  }
  /// How many tensors have this reason.
  static long count(const offload::Choice& choice, offload::Reason reason) {
    return std::count(choice.reasons.begin(), choice.reasons.end(), reason);
  }
};

/// Tensors that are not kept.
long given_up(const Plan& plan) {
  return std::count_if(plan.decisions.begin(), plan.decisions.end(),
                       [](Decision decision) { return decision != Decision::keep; });
}

Place& place(const Layers& layers, Plan& plan, const std::string& tensor) {
  return *std::find_if(plan.places.begin(), plan.places.end(), [&](const Place& at) {
    return layers.program.info(at.tensor).name == tensor;
  });
}

bool contains(const std::vector<std::string>& faults, const std::string& words) {
  return std::any_of(faults.begin(), faults.end(), [&](const std::string& fault) {
    return fault.find(words) != std::string::npos;
  });
}

TEST(gradient_memory_reuse, lie_in_gradients_of_earlier_layers_and_share_no_bytes) {
  const Layers layers;
  const offload::GradientMemoryReuse reuse = layers.reuse();
  EXPECT_FALSE(reuse.has(layers.saved[0]));  // no gradient is written after its last use
  for (std::size_t i = 1; i < layers.saved.size(); ++i) {
    ASSERT_TRUE(reuse.has(layers.saved[i])) << i;
    const std::size_t begin = reuse.offset(layers.saved[i], 0);
    const Place& own = layers.layout.place("small" + std::to_string(i));
    EXPECT_GT(begin, own.offset) << i;  // later layers come first in memory
    for (std::size_t j = 1; j < i; ++j) {
      const std::size_t other = reuse.offset(layers.saved[j], 0);
      EXPECT_TRUE(begin + kMiB <= other || other + kMiB <= begin) << i << " " << j;
    }
  }
}

/// An op with two tensors that it alone uses, and one that writes a gradient of 1 MiB.
struct TwoRooms {
  Program program{"rooms"};
  PersistentLayout layout;
  Tensor large, small;

  TwoRooms() {
    layout.open_bucket("gradient", "dense", Dtype::uint8);
    layout.add(one_buffer("gradient", Dtype::uint8, {kMiB}, Lifetime::gradient));
    layout.close();
    program.begin_section("only");
    small = program.scratch("small", Dtype::uint8, {kAlignment});
    large = program.scratch("large", Dtype::uint8, {2 * kAlignment});
    program.append(make_op("works", {{small, Access::write}, {large, Access::write}}));
    program.append(make_op("ends", {{program.add(layout.info("gradient")), Access::write}}));
    program.finish();
  }
};

TEST(gradient_memory_reuse, two_rooms_of_an_op_share_no_bytes) {
  const TwoRooms rooms;
  const offload::GradientMemoryReuse reuse(rooms.program, rooms.layout, {}, kAlignment);
  EXPECT_TRUE(reuse.has(rooms.large));
  EXPECT_FALSE(reuse.has(rooms.small));
}

TEST(gradient_memory_reuse, what_is_larger_than_a_gradient_lies_in_two) {
  Program program("wide");
  PersistentLayout layout;
  layout.open_bucket("gradients", "dense", Dtype::uint8);
  for (const char* name : {"first", "second"})
    layout.add(one_buffer(name, Dtype::uint8, {kMiB}, Lifetime::gradient));
  layout.close();
  program.begin_section("only");
  const Tensor wide = program.scratch("wide", Dtype::uint8, {3 * kMiB / 2});
  program.append(make_op("works", {{wide, Access::write}}));
  program.append(make_op("ends", {{program.add(layout.info("first")), Access::write},
                                  {program.add(layout.info("second")), Access::write}}));
  program.finish();
  EXPECT_TRUE(offload::GradientMemoryReuse(program, layout, {}, kAlignment).has(wide));
}

TEST(gradient_memory_reuse, need_a_gradient_that_is_stored_in_a_section_that_runs_once) {
  const Layers added(6, 1, Access::update);
  for (const Tensor tensor : added.saved) EXPECT_FALSE(added.reuse().has(tensor));
  const Layers again(6, 3);
  const Plan plan = again.plan(true, 5 * kMiB);
  EXPECT_GT(given_up(plan), 0);
  EXPECT_TRUE(again.faults(plan).empty());
}

TEST(gradient_memory_reuse, save_copies_and_are_proven) {
  const Layers layers;
  const Plan with = layers.plan(true, 2 * kMiB);
  EXPECT_EQ(given_up(with), 0);
  EXPECT_LE(with.bytes[static_cast<int>(Region::transient)], 2U * kMiB);
  EXPECT_EQ(layers.faults(with), std::vector<std::string>{});
  const Plan without = layers.plan(false, 4 * kMiB);
  EXPECT_GT(given_up(without), 0);
}

TEST(gradient_memory_reuse, are_left_where_a_plan_reads_longer_than_the_program) {
  const Layers layers;
  Plan plan = layers.plan(true, 2 * kMiB);
  Place& at = place(layers, plan, "y5");
  ASSERT_EQ(at.region, Region::persistent);
  Step late;
  late.what = Step::What::mark;
  late.places = {static_cast<int>(&at - plan.places.data())};
  plan.steps.push_back(late);
  layers.reuse().leave_in_time(plan);
  EXPECT_EQ(at.region, Region::transient);
  EXPECT_EQ(place(layers, plan, "y4").region, Region::persistent);
}

TEST(gradient_memory_reuse, are_not_named_as_a_reason_where_nothing_lies) {
  const LateReaders late;
  offload::Choice choice;
  const Plan plan = late.plan(true, 16 * kMiB, choice);
  EXPECT_EQ(given_up(plan), LateReaders::kLayers);
  for (const Place& at : plan.places)
    EXPECT_TRUE(at.region == Region::transient ||
                is_persistent(late.program.info(at.tensor).lifetime));
  EXPECT_EQ(late.count(choice, offload::Reason::in_gradient_memory), 0);
  EXPECT_GE(late.count(choice, offload::Reason::not_needed), LateReaders::kLayers);
}

TEST(gradient_memory_reuse, are_given_up_if_a_budget_fits_without_them) {
  const LateReaders late;
  for (const bool reuse : {false, true}) {
    offload::Choice choice;
    const Plan plan = late.plan(reuse, 5 * kMiB, choice);
    EXPECT_GT(given_up(plan), LateReaders::kLayers);
    EXPECT_LE(plan.bytes[static_cast<int>(Region::transient)], 5U * kMiB);
    const PlannedProgram planned{&late.program, &plan};
    EXPECT_EQ(verify({&planned, 1}), std::vector<std::string>{});
    EXPECT_THROW(late.plan(reuse, kMiB / 2, choice), Error);
  }
}

TEST(gradient_memory_reuse, a_gradient_that_comes_too_early_is_caught) {
  const Layers layers;
  Plan plan = layers.plan(true, 2 * kMiB);
  place(layers, plan, "y3").offset = layers.layout.place("big5").offset;
  EXPECT_TRUE(contains(layers.faults(plan), "reads y3, but its bytes hold big5"));
}

TEST(gradient_memory_reuse, on_what_outlives_a_step_or_outside_gradients_are_caught) {
  const Layers layers;
  Plan plan = layers.plan(true, 2 * kMiB);
  place(layers, plan, "y3").offset = layers.layout.place("w").offset;
  EXPECT_TRUE(contains(layers.faults(plan), "y3 lies on w, which outlives a step"));
  plan.bytes[0] += 2 * kMiB;
  place(layers, plan, "y3").offset = layers.layout.bytes();
  EXPECT_TRUE(contains(layers.faults(plan), "not among gradients"));
}

TEST(gradient_memory_reuse, in_padding_that_a_collective_takes_along_are_caught) {
  const Layers layers(6, 1, Access::write, true);
  Plan plan = layers.plan(true, 2 * kMiB);
  EXPECT_EQ(layers.faults(plan), std::vector<std::string>{});
  Place& tiny = place(layers, plan, "tiny");
  EXPECT_EQ(tiny.region, Region::transient);
  const Place& small = layers.layout.place("small5");
  ASSERT_GE(layers.layout.place("big4").offset, small.end() + 2 * kAlignment);
  tiny.region = Region::persistent;
  tiny.offset = small.offset + kAlignment;
  EXPECT_TRUE(contains(layers.faults(plan), "reads tiny, but its bytes hold gradient"));
}

/// A window of a state begins with transient memory, a tensor with the gradients.
TEST(gradient_memory_reuse, on_the_offset_of_a_window_are_sound) {
  PersistentLayout layout;
  layout.open_bucket("gradient", "", Dtype::fp32);
  layout.add(Layers::gradient("big", kMiB));
  layout.open_bucket("states", "", Dtype::fp32, {}, Region::host);
  layout.add(one_buffer("state", Dtype::fp32, {kMiB}, Lifetime::optimizer_state));
  layout.close();
  Program program("windows");
  program.begin_section("only");
  const Tensor y = program.saved("y", Dtype::uint8, {kMiB}, "mlp_act");
  const Tensor big = program.add(layout.info("big")), state = program.add(layout.info("state"));
  program.append(make_op("forward", {{y, Access::write}}));
  program.append(make_op("backward", {{y, Access::read}}));
  program.append(make_op("store", {{big, Access::write}}));
  program.append(make_op("update", {{big, Access::read}, {state, Access::update}}));
  program.finish();
  Plan plan = offload::make_plan(program, layout, {});
  const auto window = std::ranges::find_if(plan.places, [&](const Place& at) {
    return at.tensor.id == state.id && at.region == Region::transient;
  });
  ASSERT_NE(window, plan.places.end());
  Place& tenant =
      *std::ranges::find(plan.places, y.id, [](const Place& at) { return at.tensor.id; });
  tenant.region = Region::persistent;
  tenant.offset = layout.place("big").offset;
  EXPECT_EQ(window->offset, tenant.offset);
  const PlannedProgram planned{&program, &plan};
  EXPECT_EQ(verify({&planned, 1}), std::vector<std::string>{});
}

}  // namespace
}  // namespace stowage::ctest
