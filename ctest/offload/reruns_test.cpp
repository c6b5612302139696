// What is computed again of tensors that ops write and read in parts.
#include "offload/reruns.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "execution/program.hpp"
#include "offload/planner.hpp"

namespace stowage::ctest {
namespace {

using namespace execution;
using Ranges = std::vector<Range>;

void append_op(Program& program, std::vector<Use> uses) {
  Op op;
  op.name = "op" + std::to_string(program.ops().size());
  op.uses = std::move(uses);
  op.launch = [](Queue&, std::span<const View>) {};
  program.append(std::move(op));
}

/// A tensor of eight, with a scale behind its payload or without.
TensorInfo of_eight(std::string name, Lifetime lifetime, bool scaled) {
  TensorInfo info = one_buffer(std::move(name), Dtype::fp32, {8}, lifetime);
  if (scaled) info.buffers.push_back({"scale", Dtype::fp32, {1}});
  return info;
}

/// `written` parts of a scratch tensor of eight are made from what is kept, `read` of it makes a
/// saved one, which backward asks for.
/// @param scaled parts have a scale, which every op that makes one of them writes
std::optional<std::vector<int>> chain(const Ranges& written, const Range& read,
                                      bool scaled = false) {
  Program program("parts");
  program.begin_section("only");
  const Tensor kept = program.saved("kept", Dtype::fp32, {8}, "");
  const Tensor parts = program.add(of_eight("parts", Lifetime::scratch, scaled));
  const Tensor saved = program.saved("saved", Dtype::fp32, {8}, "module");
  const auto append = [&](std::vector<Use> uses) { append_op(program, std::move(uses)); };
  append({{kept, Access::write}});
  {
    const auto layer = program.enter("layer", 0, 0);
    for (const Range& part : written) append({{kept, Access::read}, {parts, Access::write, part}});
    append({{parts, Access::read, read}, {saved, Access::write}});
  }
  {
    const auto layer = program.enter("layer", 0, 0, true);
    append({{saved, Access::read}});
  }
  program.finish();
  const offload::Reruns reruns(program);
  const std::vector<Decision> decisions{Decision::keep, Decision::keep, Decision::recompute};
  const std::vector<char> present(3, 0);
  return reruns.chain(saved, static_cast<int>(program.ops().size()) - 1, decisions, present);
}

TEST(reruns, all_parts_that_are_read_are_made_again) {
  EXPECT_EQ(chain({{0, 8}}, {0, 8}), (std::vector<int>{1, 2}));
  EXPECT_EQ(chain({{4, 8}, {0, 4}}, {0, 8}), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(chain({{0, 2}, {2, 6}}, {1, 5}), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(chain({{4, 8}}, {4, 8}), (std::vector<int>{1, 2}));
}

TEST(reruns, a_scale_that_several_ops_write_is_not_made_again) {
  EXPECT_EQ(chain({{0, 8}}, {4, 8}, true), (std::vector<int>{1, 2}));
  EXPECT_EQ(chain({{4, 8}, {0, 4}}, {0, 8}, true), std::nullopt);
  EXPECT_EQ(chain({{4, 8}, {0, 4}}, {4, 8}, true), std::nullopt);
}

/// A scratch tensor that `layer` of microbatch 0 makes. Forward of microbatch 1 reads it in
/// layer 3 to make a saved one, which its backward asks for.
std::optional<std::vector<int>> chain_from_earlier(int layer) {
  Program program("microbatches");
  program.begin_section("only");
  const Tensor kept = program.saved("kept", Dtype::fp32, {8}, "");
  const Tensor shared = program.scratch("shared", Dtype::fp32, {8});
  const Tensor saved = program.saved("saved", Dtype::fp32, {8}, "module");
  const auto append = [&](std::vector<Use> uses) { append_op(program, std::move(uses)); };
  append({{kept, Access::write}});
  const auto pass = [&](int index, int microbatch, bool backward, std::vector<Use> uses) {
    const auto scope = program.enter("layer", index, microbatch, backward);
    append(std::move(uses));
  };
  pass(layer, 0, false, {{kept, Access::read}, {shared, Access::write}});
  pass(3, 1, false, {{shared, Access::read}, {saved, Access::write}});
  pass(3, 1, true, {{saved, Access::read}});
  program.finish();
  const offload::Reruns reruns(program);
  const std::vector<Decision> decisions{Decision::keep, Decision::keep, Decision::recompute};
  const std::vector<char> present(3, 0);
  return reruns.chain(saved, static_cast<int>(program.ops().size()) - 1, decisions, present);
}

TEST(reruns, what_an_earlier_microbatch_made_in_the_same_layer_stays) {
  EXPECT_EQ(chain_from_earlier(3), std::vector<int>{2});
  EXPECT_FALSE(chain_from_earlier(2));
}

/// A saved tensor is made from the first half of one that stays; then an op writes the other half.
std::optional<std::vector<int>> chain_past_a_writer(bool scaled) {
  Program program("halves");
  program.begin_section("only");
  const Tensor halves = program.add(of_eight("halves", Lifetime::saved, scaled));
  const Tensor saved = program.saved("saved", Dtype::fp32, {8}, "module");
  const auto append = [&](std::vector<Use> uses) { append_op(program, std::move(uses)); };
  append({{halves, Access::write, {0, 4}}});
  {
    const auto layer = program.enter("layer", 0, 0);
    append({{halves, Access::read, {0, 4}}, {saved, Access::write}});
    append({{halves, Access::write, {4, 8}}});
  }
  const auto layer = program.enter("layer", 0, 0, true);
  append({{saved, Access::read}});
  program.finish();
  const std::vector<Decision> decisions{Decision::keep, Decision::recompute};
  return offload::Reruns(program).chain(saved, 3, decisions, std::vector<char>(2, 0));
}

TEST(reruns, a_writer_of_another_range_has_changed_the_scale) {
  EXPECT_EQ(chain_past_a_writer(false), std::vector<int>{1});
  EXPECT_FALSE(chain_past_a_writer(true));
}

TEST(reruns, what_nobody_wrote_or_two_did_is_not) {
  EXPECT_FALSE(chain({{0, 4}}, {0, 8}));
  EXPECT_FALSE(chain({{4, 8}}, {0, 8}));
  EXPECT_FALSE(chain({{0, 2}, {3, 8}}, {0, 8}));
  EXPECT_FALSE(chain({{0, 5}, {4, 8}}, {0, 8}));
}

/// An op makes a tensor that stays and one that is made again, which makes both again.
TEST(reruns, what_stays_is_read_where_it_was_made_first) {
  Program program("two");
  program.begin_section("only");
  const Tensor kept = program.saved("kept", Dtype::fp32, {8}, "");
  const Tensor again = program.saved("again", Dtype::fp32, {8}, "again");
  const Tensor stays = program.saved("stays", Dtype::fp32, {8}, "stays");
  append_op(program, {{kept, Access::write}});
  {
    const auto layer = program.enter("layer", 0, 0);
    append_op(program, {{kept, Access::read}, {again, Access::write}, {stays, Access::write}});
  }
  {
    const auto layer = program.enter("layer", 0, 0, true);
    append_op(program, {{again, Access::read}, {stays, Access::read}});
  }
  program.finish();
  offload::PlannerOptions options;
  options.policy.recompute = {{"again", {"again"}}};
  options.policy.min_tensor_bytes = 1;
  const Plan plan = offload::make_plan(program, {}, options);
  const auto places = [&](Step::What what, int op) {
    const auto found = std::ranges::find_if(
        plan.steps, [&](const Step& step) { return step.what == what && step.op == op; });
    return found == plan.steps.end() ? std::vector<int>(3, -1) : found->places;
  };
  const std::vector<int> made = places(Step::What::run, 1), rerun = places(Step::What::rerun, 1);
  EXPECT_EQ(places(Step::What::run, 2), (std::vector<int>{rerun[1], made[2]}));
  EXPECT_NE(rerun[2], made[2]);
}

}  // namespace
}  // namespace stowage::ctest
