// What is computed again of tensors that ops write and read in parts.
#include "offload/reruns.hpp"

#include <gtest/gtest.h>

#include <string>

#include "execution/program.hpp"

namespace stowage::ctest {
namespace {

using namespace execution;
using Ranges = std::vector<Range>;

/// `written` parts of a scratch tensor of eight are made from what is kept, `read` of it makes a
/// saved one, which backward asks for.
std::optional<std::vector<int>> chain(const Ranges& written, const Range& read) {
  Program program("parts");
  program.begin_section("only");
  const Tensor kept = program.saved("kept", Dtype::fp32, {8}, "");
  const Tensor parts = program.scratch("parts", Dtype::fp32, {8});
  const Tensor saved = program.saved("saved", Dtype::fp32, {8}, "module");
  const auto append = [&](std::vector<Use> uses) {
    Op op;
    op.name = "op" + std::to_string(program.ops().size());
    op.uses = std::move(uses);
    program.append(std::move(op));
  };
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

/// A scratch tensor that `layer` of microbatch 0 makes. Forward of microbatch 1 reads it in
/// layer 3 to make a saved one, which its backward asks for.
std::optional<std::vector<int>> chain_from_earlier(int layer) {
  Program program("microbatches");
  program.begin_section("only");
  const Tensor kept = program.saved("kept", Dtype::fp32, {8}, "");
  const Tensor shared = program.scratch("shared", Dtype::fp32, {8});
  const Tensor saved = program.saved("saved", Dtype::fp32, {8}, "module");
  const auto append = [&](std::vector<Use> uses) {
    Op op;
    op.name = "op" + std::to_string(program.ops().size());
    op.uses = std::move(uses);
    program.append(std::move(op));
  };
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

TEST(reruns, what_nobody_wrote_or_two_did_is_not) {
  EXPECT_FALSE(chain({{0, 4}}, {0, 8}));
  EXPECT_FALSE(chain({{4, 8}}, {0, 8}));
  EXPECT_FALSE(chain({{0, 2}, {3, 8}}, {0, 8}));
  EXPECT_FALSE(chain({{0, 5}, {4, 8}}, {0, 8}));
}

}  // namespace
}  // namespace stowage::ctest
