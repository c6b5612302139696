// A digest of a program or a plan tells every change of what it declares, and where it is.
#include "execution/digest.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace stowage::execution {
namespace {

/// What a mutant may change of a small program.
struct Draft {
  std::int64_t width = 64;
  Access access = Access::write;
  Range range = {};
  std::string name = "layers.3.mlp/fc1";
  Lane lane = Lane::compute;
  Cost cost = {100, 200, 3, 4, 5};
  Communication communication = {.kind = "exchange",
                                 .group = "pipeline",
                                 .members = {0, 1},
                                 .detail = "",
                                 .transfers = {{1, true, 64, "stream of microbatch 3"}}};
  int layer = 3;
  bool only_rerun = false;
  int repeat = 1;

  Program program() const {
    Program program("p");
    program.begin_section("body", repeat);
    const Tensor x = program.input("x", Dtype::fp32, {64});
    const Tensor y = program.saved("y", Dtype::fp32, {width}, "mlp_act");
    const auto scope = program.enter("layer", layer);
    Op first;
    first.name = name;
    first.lane = lane;
    first.uses = {{x, Access::read}, {y, access, range}};
    first.cost = cost;
    program.append(first);
    Op second;
    second.name = "send";
    second.lane = Lane::comm;
    second.uses = {{y, Access::read}};
    second.communication = communication;
    second.only_rerun = only_rerun;
    program.append(second);
    return program;
  }
};

using Change = std::function<void(Draft&)>;

const std::vector<Change> kChanges = {
    [](Draft& d) { d.width = 65; },
    [](Draft& d) { d.access = Access::update; },
    [](Draft& d) {
      d.range = {0, 32};
    },
    [](Draft& d) {
      d.range = {32, 64};
    },
    [](Draft& d) { d.name = "layers.3.mlp/fc2"; },
    [](Draft& d) { d.lane = Lane::comm; },
    [](Draft& d) { d.cost.flops = 101; },
    [](Draft& d) { d.cost.bytes = 201; },
    [](Draft& d) { d.cost.idle_flops = 4; },
    [](Draft& d) { d.cost.apart_bytes = 5; },
    [](Draft& d) { d.cost.more_kernels = 6; },
    [](Draft& d) { d.communication.kind = "all_reduce"; },
    [](Draft& d) { d.communication.group = "tensor"; },
    [](Draft& d) {
      d.communication.members = {0, 2};
    },
    [](Draft& d) { d.communication.count = 64; },
    [](Draft& d) { d.communication.dtype = Dtype::bf16; },
    [](Draft& d) { d.communication.detail = "sum"; },
    [](Draft& d) { d.communication.transfers[0].peer = 0; },
    [](Draft& d) { d.communication.transfers[0].sends = false; },
    [](Draft& d) { d.communication.transfers[0].count = 65; },
    [](Draft& d) { d.communication.transfers[0].what = "stream of microbatch 4"; },
    [](Draft& d) { d.layer = 4; },
    [](Draft& d) { d.only_rerun = true; },
    [](Draft& d) { d.repeat = 2; },
};

TEST(digest, of_a_program_tells_every_change) {
  const std::uint64_t same = digest(text_of(Draft().program()));
  EXPECT_EQ(same, digest(text_of(Draft().program())));
  std::set<std::uint64_t> seen{same};
  for (std::size_t i = 0; i < kChanges.size(); ++i) {
    Draft draft;
    kChanges[i](draft);
    EXPECT_TRUE(seen.insert(digest(text_of(draft.program()))).second) << "change " << i;
  }
}

TEST(digest, an_op_says_what_it_declares) {
  const ProgramText text = text_of(Draft{.range = {0, 32}}.program());
  ASSERT_EQ(text.ops.size(), 3u);  // behind the copy of the input
  EXPECT_EQ(text.ops[1].name, "layers.3.mlp/fc1");
  EXPECT_EQ(text.ops[1].place, "compute /step layer -1 microbatch -1/layer layer 3 microbatch -1");
  EXPECT_EQ(text.ops[1].uses,
            "read x[input ; payload fp32 64], write y[saved mlp_act; payload fp32 64](0 to 32)");
  EXPECT_EQ(text.ops[1].cost, "100 flops, 200 bytes, 3 idle, 4 apart, 5 more");
  EXPECT_EQ(text.ops[2].communication,
            "exchange pipeline (0,1) count 0 fp32 ; to 1 count 64 stream of microbatch 3");
}

TEST(digest, each_lane_and_access_has_its_word) {
  for (const auto& [lane, word] : {std::pair(Lane::compute, "compute"),
                                   {Lane::comm, "comm"},
                                   {Lane::d2h, "d2h"},
                                   {Lane::h2d, "h2d"}}) {
    const ProgramText text = text_of(Draft{.lane = lane}.program());
    EXPECT_EQ(text.ops[1].place,
              fmt::format("{} /step layer -1 microbatch -1/layer layer 3 microbatch -1", word));
  }
  for (const auto& [access, word] :
       {std::pair(Access::read, "read"), {Access::write, "write"}, {Access::update, "update"}})
    EXPECT_TRUE(text_of(Draft{.access = access}.program())
                    .ops[1]
                    .uses.ends_with(fmt::format(", {} y[saved mlp_act; payload fp32 64]", word)));
}

// Sums of costs differ in their last bits where a compiler fuses a product and a sum.
TEST(digest, the_last_bit_of_a_cost_does_not_count) {
  Draft draft;
  draft.cost.flops = 1.0 / 3;
  const std::uint64_t same = digest(text_of(draft.program()));
  draft.cost.flops += 0x1p-54;
  EXPECT_EQ(digest(text_of(draft.program())), same);
  draft.cost.flops += 1e-9;
  EXPECT_NE(digest(text_of(draft.program())), same);
}

Plan small_plan() {
  Plan plan;
  plan.decisions = {Decision::keep, Decision::offload};
  plan.places = {{Tensor{0}, 0, Region::transient, 0, 256}, {Tensor{1}, 0, Region::host, 0, 256}};
  plan.steps = {{Step::What::run, 0, {0}, 0, {}, 0}, {Step::What::copy_out, -1, {0, 1}, 1, {0}, 1}};
  plan.sections = {{0, 2, 1}};
  plan.segments = {{0, 1, 0, "layer0"}};
  plan.queues = {{"compute", Lane::compute}, {"d2h", Lane::d2h}};
  plan.events = 2;
  plan.time_s = 1;
  return plan;
}

struct PlanChange {
  std::string part;
  std::function<void(Plan&)> change;
};

const std::vector<PlanChange> kPlanChanges = {
    {"decisions", [](Plan& p) { p.decisions[0] = Decision::recompute; }},
    {"places", [](Plan& p) { p.places[0].offset = 1024; }},
    {"places", [](Plan& p) { p.places[0].bytes = 512; }},
    {"places", [](Plan& p) { p.places[0].first = 1024; }},
    {"places", [](Plan& p) { p.places[0].region = Region::persistent; }},
    {"places", [](Plan& p) { p.places[1].offset = 1024; }},
    {"steps", [](Plan& p) { p.steps[0].what = Step::What::rerun; }},
    {"steps", [](Plan& p) { p.steps[0].places = {1}; }},
    {"steps", [](Plan& p) { p.steps[1].queue = 0; }},
    {"events", [](Plan& p) { p.steps[1].waits = {}; }},
    {"events", [](Plan& p) { p.steps[1].records = -1; }},
    {"events", [](Plan& p) { p.events = 3; }},
    {"sections", [](Plan& p) { p.sections[0].repeat = 2; }},
    {"segments", [](Plan& p) { p.segments[0].end = 2; }},
    {"segments", [](Plan& p) { p.segments[0].name = "layer1"; }},
    {"queues", [](Plan& p) { p.queues[1].lane = Lane::h2d; }},
    {"queues", [](Plan& p) { p.caps.d2h_bytes = 7; }},
    {"bytes", [](Plan& p) { p.bytes[1] = 256; }},
    {"bytes", [](Plan& p) { p.live_bytes = 256; }},
    {"times", [](Plan& p) { p.time_s = 1.001; }},
    {"times", [](Plan& p) { p.exposed_s = 1; }},
};

TEST(digest, of_a_plan_tells_every_change_and_its_part) {
  const PlanText same = text_of(small_plan());
  std::set<std::uint64_t> seen{digest(same)};
  for (std::size_t i = 0; i < kPlanChanges.size(); ++i) {
    Plan plan = small_plan();
    kPlanChanges[i].change(plan);
    const PlanText text = text_of(plan);
    EXPECT_TRUE(seen.insert(digest(text)).second) << "change " << i;
    for (std::size_t p = 0; p < text.parts().size(); ++p) {
      const auto [name, part] = text.parts()[p];
      EXPECT_EQ(part != same.parts()[p].second, name == kPlanChanges[i].part)
          << "change " << i << " in " << name;
    }
  }
}

TEST(digest, of_a_layout_tells_places) {
  const auto text = [](std::int64_t width, int held) {
    PersistentLayout layout;
    layout.open_bucket("parameter", "dense", Dtype::fp32, {held < 0 ? 1 : 2, held});
    layout.add(one_buffer("w", Dtype::fp32, {width}, Lifetime::parameter));
    layout.add(one_buffer("v", Dtype::fp32, {64}, Lifetime::parameter));
    layout.close();
    return text_of(layout);
  };
  EXPECT_EQ(text(64, -1), "parameter dense fp32 shard -1 of 1 at 0, 4096 elements: w@0 v@2048\n");
  EXPECT_EQ((std::set{text(64, -1), text(4096, -1), text(64, 0), text(64, 1)}).size(), 4u);
}

}  // namespace
}  // namespace stowage::execution
