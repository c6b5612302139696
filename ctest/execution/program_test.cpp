#include "execution/program.hpp"

#include <gtest/gtest.h>

#include <tuple>

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

TEST(program, copies_move_the_rows_that_are_expected_where_these_are_few) {
  Program program("p");
  const Tensor count = program.scratch("count", Dtype::int32, {5});
  const auto rows = [&](std::int64_t expected) {
    return TensorInfo{"t",
                      {{"payload", Dtype::bf16, {24, 5}}, {"scales", Dtype::fp32, {24}}},
                      Lifetime::saved,
                      "moe_act",
                      {count, expected}};
  };
  EXPECT_TRUE(rows(6).counts_rows());
  EXPECT_EQ(rows(6).moved_bytes(0), 6U * 5 * 2);
  EXPECT_EQ(rows(6).moved_bytes(1), 6U * 4);
  EXPECT_FALSE(rows(7).counts_rows());  // 24 is not four times as many
  EXPECT_EQ(rows(7).moved_bytes(0), 24U * 5 * 2);
  EXPECT_EQ(rows(7).moved_bytes(1), 24U * 4);
  TensorInfo all = rows(6);
  all.rows = {};
  EXPECT_FALSE(all.counts_rows());
  EXPECT_EQ(all.moved_bytes(1), 24U * 4);
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
    return program.scopes()[program.ops()[i].scope];
  };
  EXPECT_EQ(scope(1).kind, "moe");
  EXPECT_EQ(program.scopes()[scope(1).parent].kind, "layer");
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

TEST(program, a_bucket_is_used_part_by_part_and_its_padding_is_written) {
  PersistentLayout layout;
  layout.open_bucket("gradient/0", "dense", Dtype::fp32);
  layout.add(persistent("a", Lifetime::gradient, Dtype::fp32, 100));
  layout.add(persistent("b", Lifetime::gradient, Dtype::fp32, 2048));
  layout.close();
  Program program("p", &layout);
  const Tensor b = program.add(layout.info("b")), a = program.add(layout.info("a"));
  const Tensor whole = program.find("gradient/0");
  EXPECT_EQ(program.info(a).whole, whole);
  EXPECT_EQ(program.info(b).first, kBucketGrain);
  const auto uses = [&](Range range, Access access) {
    std::vector<std::tuple<Access, std::int64_t, std::int64_t>> found;
    for (const Use& use : program.uses(whole, range, access))
      found.emplace_back(use.access, use.range.begin, use.range.end);
    return found;
  };
  using Found = decltype(uses({}, Access::read));
  EXPECT_EQ(
      uses({}, Access::update),
      (Found{{Access::update, 0, 100}, {Access::write, 100, 2048}, {Access::update, 2048, 4096}}));
  EXPECT_EQ(uses({}, Access::read), (Found{{Access::read, 0, 100}, {Access::read, 2048, 4096}}));
  EXPECT_EQ(
      uses({50, 2050}, Access::write),
      (Found{{Access::write, 50, 100}, {Access::write, 100, 2048}, {Access::write, 2048, 2050}}));
  EXPECT_THROW((void)program.uses(whole, {0, 4097}, Access::read), Error);
}

TEST(persistent, a_rank_holds_its_shard) {
  PersistentLayout layout;
  layout.open_bucket("m", "dense", Dtype::fp32, {.parts = 3, .held = 1});
  layout.add(persistent("a", Lifetime::optimizer_state, Dtype::fp32, 100));
  layout.add(persistent("b", Lifetime::optimizer_state, Dtype::fp32, 3000));
  layout.add(persistent("c", Lifetime::optimizer_state, Dtype::fp32, 6000));
  layout.close();  // 1 + 2 + 3 grains: two a shard
  EXPECT_FALSE(layout.has("a"));
  EXPECT_EQ(layout.held("a", 0), (Range{0, 100}));
  EXPECT_EQ(layout.held("b"), (Range{2048, 3000}));
  EXPECT_EQ(layout.held("c"), (Range{0, 2048}));
  EXPECT_EQ(layout.info("b").buffers[0].elements(), 952);
  EXPECT_EQ(layout.whole("b").buffers[0].elements(), 3000);
  EXPECT_EQ(layout.place("b").offset, 0U);
  EXPECT_EQ(layout.place("c").offset, kBucketGrain * sizeof(float));
  EXPECT_EQ(layout.bytes(), 2 * kBucketGrain * sizeof(float));
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
