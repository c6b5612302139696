// Sums by a tree on a GPU: the bits of those on the host.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "execution/backend.hpp"
#include "execution/cuda_backend.hpp"
#include "parallel/groups/tree_nodes.hpp"

namespace stowage::parallel {
namespace {

using execution::Lane;
using execution::MemoryKind;

class sum_tree_gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
    backend = execution::make_cuda_backend();
    queue = backend->make_queue(Lane::compute, "compute");
  }

  /// What `functor_of(rows)` leaves in rows of random values, here and on the GPU.
  template <class A, class F>
  void check(std::int64_t rows, std::int64_t count, F&& functor_of) {
    std::mt19937 engine(static_cast<unsigned>(31 * rows + count));
    std::uniform_real_distribution<double> values(-9, 9);
    std::vector<A> wanted(static_cast<std::size_t>(rows * count)), found(wanted.size());
    for (A& value : wanted) value = static_cast<A>(values(engine));
    const std::size_t bytes = wanted.size() * sizeof(A);
    const auto memory = backend->allocate(MemoryKind::device, bytes);
    queue->copy(memory->data(), wanted.data(), bytes);
    execution::parallel_for(*queue, count, functor_of(reinterpret_cast<A*>(memory->data())));
    queue->copy(found.data(), memory->data(), bytes);
    queue->synchronize();
    const auto on_host = functor_of(wanted.data());
    for (std::int64_t i = 0; i < count; ++i) on_host(i);
    EXPECT_EQ(std::memcmp(found.data(), wanted.data(), bytes), 0)
        << rows << " rows of " << count << " elements";
  }

  template <class A>
  void check_leaves() {
    constexpr int kKept = 5;
    for (const std::int64_t count : {1, 1000, 70001})
      for (const std::int64_t begin : {0, 3, 8})
        for (std::int64_t number = 0; number < 12; ++number)
          for (const bool last : {false, true})
            check<A>(kKept + 1, count, [&](A* rows) {
              detail::AddLeaf<A> add{};
              add.leaf = rows;
              for (int k = 0; k < kKept; ++k) add.kept[k] = rows + (k + 1) * count;
              add.begin = begin;
              add.number = number;
              add.last = last;
              add.alone = begin == 0;
              return add;
            });
  }

  template <class A>
  void check_nodes() {
    for (const std::int64_t count : {1, 1000, 70001})
      for (const int ranks : {2, 3, 8})
        for (const std::int64_t each : {1, 3, 4}) {
          int nodes = 0;
          for (int r = 0; r < ranks; ++r) nodes += nodes_of(r * each, (r + 1) * each);
          check<A>(nodes + 1, count, [&](A* rows) {
            detail::AddNodes<A> add{};
            add.others = rows + count;
            add.stride = count;
            add.out = rows;
            add.each = each;
            add.rank = -1;
            add.ranks = ranks;
            return add;
          });
        }
  }

  std::unique_ptr<execution::Backend> backend;
  std::unique_ptr<execution::Queue> queue;
};

TEST_F(sum_tree_gpu, leaves_are_the_hosts) {
  check_leaves<float>();
  check_leaves<double>();
}

TEST_F(sum_tree_gpu, nodes_are_the_hosts) {
  check_nodes<float>();
  check_nodes<double>();
}

}  // namespace
}  // namespace stowage::parallel
