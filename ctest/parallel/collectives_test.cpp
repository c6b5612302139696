// Collectives as ops of a program, on the comm queue of the host backend.
#include "parallel/collectives.hpp"

#include <gtest/gtest.h>

#include "ctest/parallel/mpi_support.hpp"
#include "execution/backend.hpp"
#include "execution/persistent.hpp"

namespace stowage::parallel {
namespace {

using execution::Dtype;
using execution::Lane;
using execution::Lifetime;
using execution::Tensor;
using execution::View;

class collectives : public MpiTest {
 protected:
  Tensor add(const std::string& name, std::int64_t elements, Dtype dtype = Dtype::fp32) {
    return program.add({name, {{"payload", dtype, {elements}}}, Lifetime::gradient, "", {}});
  }

  /// Launches an op on tensors at the given byte offsets of `memory`.
  void launch(const execution::Op& op, const std::vector<std::size_t>& offsets) {
    std::vector<void*> addresses;
    for (const std::size_t offset : offsets) addresses.push_back(memory->data() + offset);
    std::vector<View> views;
    for (std::size_t i = 0; i < op.uses.size(); ++i)
      views.push_back({{&addresses[i], 1}, &program.info(op.uses[i].tensor)});
    op.launch(*comm, views);
    comm->synchronize();
  }

  template <class T>
  T* at(std::size_t offset) {
    return reinterpret_cast<T*>(memory->data() + offset);
  }
  int sum_of_ranks() const { return world.size() * (world.size() + 1) / 2; }  // ranks from 1

  std::unique_ptr<execution::Backend> backend = execution::make_host_backend({7, 200e-6});
  std::unique_ptr<execution::Queue> comm = backend->make_queue(Lane::comm, "comm");
  std::unique_ptr<execution::Arena> memory =
      backend->allocate(execution::MemoryKind::device, 1 << 20);
  execution::Program program{"test"};
  std::shared_ptr<Collectives> group = make_host_collectives(world, "data");
};

TEST_F(collectives, bucket_is_reduced_whole) {
  const Tensor a = add("a", 1000), b = add("b", 3000);
  const std::size_t start_b = 1024 * sizeof(float);  // `a` padded to the bucket's grain
  const execution::Op op = all_reduce_op(program, "reduce", {{a, b}}, Reduction::sum, group);
  for (std::size_t i = 0; i < 1000; ++i) at<float>(0)[i] = static_cast<float>(world.rank() + 1);
  for (std::size_t i = 0; i < 3000; ++i)
    at<float>(start_b)[i] = static_cast<float>(10 * (world.rank() + 1));
  at<float>(start_b)[3000] = 5;  // beyond the last tensor: not reduced
  launch(op, {0, start_b});
  for (std::size_t i = 0; i < 1000; ++i) ASSERT_EQ(at<float>(0)[i], sum_of_ranks());
  for (std::size_t i = 0; i < 3000; ++i) ASSERT_EQ(at<float>(start_b)[i], 10 * sum_of_ranks());
  EXPECT_EQ(at<float>(start_b)[3000], 5);
}

TEST_F(collectives, op_says_what_it_exchanges) {
  const Tensor a = add("a", 1000), b = add("b", 3000);
  const execution::Op op = all_reduce_op(program, "reduce", {{a, b}}, Reduction::sum, group);
  EXPECT_EQ(op.name, "reduce");
  EXPECT_EQ(op.lane, Lane::comm);
  ASSERT_EQ(op.uses.size(), 2U);
  EXPECT_EQ(op.uses[1].tensor, b);
  EXPECT_EQ(op.uses[1].access, execution::Access::update);
  const execution::Communication expected = {"all_reduce_sum", "data", 4000, Dtype::fp32, -1};
  EXPECT_EQ(op.communication, expected);
  EXPECT_DOUBLE_EQ(op.cost.bytes, 2.0 * (world.size() - 1) / world.size() * 16000);
}

TEST_F(collectives, smallest_step_ok_wins) {
  const Tensor ok = add("step_ok", 1, Dtype::int32);
  const execution::Op op = all_reduce_op(program, "ok", {{ok}}, Reduction::min, group);
  for (int bad = 0; bad < world.size(); ++bad) {
    *at<std::int32_t>(0) = world.rank() == bad ? 0 : 1;
    launch(op, {0});
    EXPECT_EQ(*at<std::int32_t>(0), 0);
  }
  *at<std::int32_t>(0) = 1;
  launch(op, {0});
  EXPECT_EQ(*at<std::int32_t>(0), 1);
}

TEST_F(collectives, counts_are_summed_exactly) {
  const Tensor load = add("load", 8, Dtype::int64);
  const execution::Op op = all_reduce_op(program, "load", {{load}}, Reduction::sum, group);
  const std::int64_t large = std::int64_t{1} << 60;
  for (std::size_t e = 0; e < 8; ++e) at<std::int64_t>(0)[e] = world.rank() == 0 ? large : 1;
  launch(op, {0});
  for (std::size_t e = 0; e < 8; ++e) EXPECT_EQ(at<std::int64_t>(0)[e], large + world.size() - 1);
}

TEST_F(collectives, tensors_apart_are_refused) {
  const Tensor a = add("a", 1000), b = add("b", 3000);
  const execution::Op op = all_reduce_op(program, "reduce", {{a, b}}, Reduction::sum, group);
  EXPECT_THROW(launch(op, {0, 64 << 10}), execution::Error);
  EXPECT_THROW(launch(op, {64 << 10, 0}), execution::Error);
}

TEST_F(collectives, mixed_types_are_refused) {
  const Tensor a = add("a", 10), b = add("b", 10, Dtype::fp64);
  EXPECT_THROW((void)all_reduce_op(program, "reduce", {{a, b}}, Reduction::sum, group),
               execution::Error);
}

TEST_F(collectives, two_objects_on_two_queues_do_not_mix) {
  const auto other = make_host_collectives(world, "data");
  const auto second = backend->make_queue(Lane::comm, "second");
  std::vector<float> a(10'000), b(10'000);
  for (int repeat = 0; repeat < 10; ++repeat) {
    std::fill(a.begin(), a.end(), 1.0F);
    std::fill(b.begin(), b.end(), 2.0F);
    group->all_reduce(*comm, 0, a.data(), 10'000, Dtype::fp32, Reduction::sum);
    other->all_reduce(*second, 0, b.data(), 10'000, Dtype::fp32, Reduction::sum);
    comm->synchronize();
    second->synchronize();
    for (const float value : a) ASSERT_EQ(value, static_cast<float>(world.size()));
    for (const float value : b) ASSERT_EQ(value, static_cast<float>(2 * world.size()));
  }
}

TEST_F(collectives, are_captured_into_graphs) {
  std::vector<double> values(100, 1.0);
  backend->begin_capture(*comm);
  group->all_reduce(*comm, 0, values.data(), 100, Dtype::fp64, Reduction::sum);
  const auto graph = backend->end_capture(*comm);
  graph->launch(*comm);
  graph->launch(*comm);
  comm->synchronize();
  for (const double value : values) EXPECT_EQ(value, world.size() * world.size());
}

}  // namespace
}  // namespace stowage::parallel
