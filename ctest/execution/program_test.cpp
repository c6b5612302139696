#include "execution/program.hpp"

#include <gtest/gtest.h>

#include "execution/error.hpp"
#include "execution/persistent.hpp"

namespace stowage::execution {
namespace {

TensorInfo persistent(std::string name, Lifetime lifetime, Dtype dtype, std::int64_t count) {
  return one_buffer(std::move(name), dtype, {count}, lifetime);
}

Op op(std::string name, std::vector<Use> uses) {
  Op made;
  made.name = std::move(name);
  made.uses = std::move(uses);
  made.launch = [](Queue&, std::span<const View>) {};
  return made;
}

TEST(program, a_persistent_tensor_is_the_same_by_name) {
  Program program("p");
  const Tensor w = program.add(persistent("w", Lifetime::parameter, Dtype::fp32, 8));
  EXPECT_EQ(program.add(persistent("w", Lifetime::parameter, Dtype::fp32, 8)), w);
  EXPECT_EQ(program.find("w"), w);
  EXPECT_FALSE(program.find("v"));
  EXPECT_THROW(program.add(persistent("w", Lifetime::parameter, Dtype::fp32, 9)), Error);
  program.scratch("s", Dtype::fp32, {4});
  EXPECT_THROW(program.scratch("s", Dtype::fp32, {4}), Error);
}

TEST(program, tensors_count_all_their_buffers) {
  Program program("p");
  const Tensor t = program.add({"t",
                                {{"payload", Dtype::bf16, {6, 5}}, {"scales", Dtype::fp32, {6}}},
                                Lifetime::saved,
                                "moe_act",
                                {}});
  EXPECT_EQ(program.info(t).bytes(), 60U + 24U);
}

TEST(program, ops_carry_their_innermost_scope) {
  Program program("p");
  const Tensor x = program.input("x", Dtype::fp32, {4});
  {
    const auto layer = program.enter("layer", 3, 1);
    {
      const auto mixer = program.enter("moe", 3, 1);
      program.append(op("inside", {{x, Access::read}}));
    }
    program.append(op("around", {{x, Access::read}}));
  }
  program.append(op("outside", {{x, Access::read}}));
  const auto scope = [&](std::size_t i) -> const Scope& {
    return program.scopes()[static_cast<std::size_t>(program.ops()[i].scope)];
  };
  EXPECT_EQ(scope(1).kind, "moe");
  EXPECT_EQ(program.scopes()[static_cast<std::size_t>(scope(1).parent)].kind, "layer");
  EXPECT_EQ(scope(2).layer, 3);
  EXPECT_EQ(scope(3).kind, "step");
}

TEST(program, outputs_are_copied_at_the_end) {
  Program program("p");
  const Tensor y = program.output("y", Dtype::fp32, {4});
  program.append(op("make", {{y, Access::write}}));
  program.finish();
  EXPECT_EQ(program.ops().back().name, "result/y");
  EXPECT_EQ(program.ops().back().lane, Lane::d2h);
  EXPECT_THROW(program.append(op("late", {{y, Access::read}})), Error);
}

TEST(program, costs_count_repeats) {
  Program program("p");
  program.begin_section("first");
  const Tensor x = program.scratch("x", Dtype::fp32, {4});
  Op once = op("once", {{x, Access::write}});
  once.cost = {10, 1};
  program.append(once);
  program.begin_section("body", 5);
  Op often = op("often", {{x, Access::read}});
  often.cost = {2, 3};
  program.append(often);
  EXPECT_EQ(program.cost().flops, 20);
  EXPECT_EQ(program.cost().bytes, 16);
}

TEST(program, communication_is_listed_in_order) {
  Program program("p");
  const Tensor x = program.scratch("x", Dtype::fp32, {4});
  Op reduce = op("reduce", {{x, Access::write}});
  reduce.lane = Lane::comm;
  reduce.communication = Communication{"all_reduce", "data", {0, 1}, 4, Dtype::fp32, "sum", {}};
  program.append(reduce);
  program.append(op("compute", {{x, Access::read}}));
  const auto lines = communication_signature(program);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("all_reduce data 4 x fp32"), std::string::npos) << lines[0];
}

TEST(persistent, buckets_keep_element_offsets_equal_and_divide_into_shards) {
  PersistentLayout layout;
  layout.open_bucket("parameter/dense/0", "dense", Dtype::bf16, {.parts = 3});
  layout.add(persistent("a", Lifetime::parameter, Dtype::bf16, 100));
  layout.add(persistent("b", Lifetime::parameter, Dtype::bf16, 5000));
  layout.open_bucket("gradient/dense/0", "dense", Dtype::fp32, {.parts = 3});
  layout.add(persistent("ga", Lifetime::gradient, Dtype::fp32, 100));
  layout.add(persistent("gb", Lifetime::gradient, Dtype::fp32, 5000));
  layout.close();
  const auto& buckets = layout.buckets();
  const auto element = [&](const Bucket& bucket, const std::string& tensor) {
    return (layout.place(tensor).offset - bucket.offset) / size_bytes(bucket.dtype);
  };
  EXPECT_EQ(element(buckets[0], "b"), element(buckets[1], "gb"));
  EXPECT_EQ(buckets[0].elements, buckets[1].elements);
  EXPECT_EQ(buckets[0].elements % (3 * kBucketGrain), 0);
  for (const char* tensor : {"a", "b", "ga", "gb"})
    EXPECT_EQ(layout.place(tensor).offset % kAlignment, 0U);
  EXPECT_LE(layout.place("b").end(), buckets[1].offset);
  EXPECT_EQ(layout.bytes(Lifetime::gradient), buckets[1].bytes());
  EXPECT_THROW(layout.place("c"), Error);
}

TEST(persistent, a_tensor_fits_its_bucket) {
  PersistentLayout layout;
  EXPECT_THROW(layout.add(persistent("a", Lifetime::parameter, Dtype::bf16, 1)), Error);
  layout.open_bucket("parameter", "dense", Dtype::bf16);
  layout.add(persistent("a", Lifetime::parameter, Dtype::bf16, 1));
  EXPECT_THROW(layout.add(persistent("a", Lifetime::parameter, Dtype::bf16, 1)), Error);
  EXPECT_THROW(layout.add(persistent("b", Lifetime::parameter, Dtype::fp32, 1)), Error);
  EXPECT_THROW(layout.add(persistent("c", Lifetime::scratch, Dtype::bf16, 1)), Error);
}

}  // namespace
}  // namespace stowage::execution
