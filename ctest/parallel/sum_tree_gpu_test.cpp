// Sums by a tree on a GPU: the bits of those on the host.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
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
    index = backend->allocate(MemoryKind::device, sizeof(std::int32_t));
  }

  /// Elements of a row, and from one row to the next: with those of the second kind all rows begin
  /// at 16 bytes, and the last pack of a row is not full.
  struct Length {
    std::int64_t count, stride;
  };
  static constexpr Length kLengths[] = {{1, 1}, {1003, 1004}, {70001, 70001}, {70001, 70004}};

  /// What `functor_of(rows)` leaves in rows of random values, here and on the GPU.
  template <class A, class F>
  void check(std::int64_t rows, const Length& length, F&& functor_of) {
    const auto [count, stride] = length;
    std::mt19937 engine(static_cast<unsigned>(31 * rows + count));
    std::uniform_real_distribution<double> values(-9, 9);
    std::vector<A> wanted(static_cast<std::size_t>(rows * stride)), found(wanted.size());
    for (A& value : wanted) value = static_cast<A>(values(engine));
    const std::size_t bytes = wanted.size() * sizeof(A);
    const auto memory = backend->allocate(MemoryKind::device, bytes);
    queue->copy(memory->data(), wanted.data(), bytes);
    execution::parallel_for(*queue, count, functor_of(reinterpret_cast<A*>(memory->data()), false));
    queue->copy(found.data(), memory->data(), bytes);
    queue->synchronize();
    const auto on_host = functor_of(wanted.data(), true);
    for (std::int64_t i = 0; i < count; ++i) on_host(i);
    EXPECT_EQ(std::memcmp(found.data(), wanted.data(), bytes), 0)
        << rows << " rows of " << count << " elements, a row each " << stride;
  }

  template <class A>
  void check_leaves() {
    constexpr int kKept = 5;
    auto* const on_device = reinterpret_cast<std::int32_t*>(index->data());
    for (const Length& length : kLengths)
      for (const std::int64_t begin : {0, 3, 8})
        for (std::int32_t number = 0; number < 12; ++number)
          for (const bool last : {false, true}) {
            std::int32_t next = number + 1;
            queue->copy(on_device, &next, sizeof(next));
            for (const bool indexed : {false, true}) {
              if (indexed && last) continue;
              check<A>(kKept + 1, length, [&](A* rows, bool on_host) {
                detail::AddLeaf<A> add{};
                add.leaf = rows;
                for (int k = 0; k < kKept; ++k) add.kept[k] = rows + (k + 1) * length.stride;
                add.begin = begin;
                add.last = last;
                if (indexed)
                  add.index = on_host ? &next : on_device;
                else
                  add.merge = detail::merge_of(begin, begin + number, last && begin == 0);
                return add;
              });
            }
          }
  }

  template <class A>
  void check_nodes() {
    for (const Length& length : kLengths)
      for (const int ranks : {2, 3, 4, 8})
        for (const std::int64_t each : {1, 3, 4})
          for (const int rank : {-1, 0, 1}) {
            int nodes = 0;
            for (int r = 0; r < ranks; ++r) nodes += nodes_of(r * each, (r + 1) * each);
            check<A>(nodes + 1, length, [&](A* rows, bool) {
              detail::AddNodes<A> add{};
              // A rank's own nodes lie in front, its last one is where the sum goes.
              const int own = rank < 0 ? 0 : nodes_of(rank * each, (rank + 1) * each);
              for (int k = 0; k + 1 < own; ++k) add.own[k] = rows + (k + 1) * length.stride;
              if (own > 0) add.own[own - 1] = rows;
              add.others = rows + std::max(own, 1) * length.stride;
              add.stride = length.stride;
              add.out = rows;
              add.each = each;
              add.rank = rank;
              add.ranks = ranks;
              return add;
            });
          }
  }

  std::unique_ptr<execution::Backend> backend;
  std::unique_ptr<execution::Queue> queue;
  std::unique_ptr<execution::Arena> index;  ///< (1) int32 on the device
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
