// Sums over ranks on a GPU: the bits of those on the host, for any number of ranks and elements,
// wherever rows begin.
#include "parallel/groups/rank_order_reduce.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "execution/backend.hpp"
#include "execution/cuda_backend.hpp"
#include "parallel/groups/overlapping_copy.hpp"

namespace stowage::parallel {
namespace {

using detail::RankOrderReduce;
using execution::Bf16;
using execution::Lane;
using execution::MemoryKind;

class rank_order_reduce_gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
    backend = execution::make_cuda_backend();
    queue = backend->make_queue(Lane::comm, "comm");
  }

  /// Rows of `ranks`, the first of them `offset` elements behind an aligned address; with 0 all
  /// are at aligned ones. Where the types agree, into the own row too.
  template <class Out, class Wire, class A>
  void check(int ranks, int rank, std::int64_t count, std::int64_t offset, Reduction reduction) {
    const std::int64_t stride = offset == 0 ? (count + 15) / 16 * 16 : count + offset;
    std::mt19937 engine(static_cast<unsigned>(7 * count + ranks));
    std::uniform_real_distribution<double> values(-9, 9);
    std::vector<Wire> rows(static_cast<std::size_t>(ranks * stride + offset));
    for (Wire& value : rows) value = static_cast<Wire>(values(engine));
    std::vector<Out> wanted(static_cast<std::size_t>(count)), found(wanted.size());
    const auto reduce_of = [&](const Wire* all, Out* out) {
      const Wire* const own = all + offset + (ranks - 1) * stride;
      return RankOrderReduce<Out, Wire, A>{all + offset, stride, own, out, rank, ranks, reduction};
    };
    for (std::int64_t i = 0; i < count; ++i) reduce_of(rows.data(), wanted.data())(i);
    const std::size_t in_bytes = rows.size() * sizeof(Wire), out_bytes = found.size() * sizeof(Out);
    const auto in = backend->allocate(MemoryKind::device, in_bytes);
    const auto out = backend->allocate(MemoryKind::device, out_bytes + 16);
    queue->copy(in->data(), rows.data(), in_bytes);
    auto* const to = reinterpret_cast<Out*>(out->data()) + (offset > 0 ? 1 : 0);
    execution::parallel_for(*queue, count,
                            reduce_of(reinterpret_cast<const Wire*>(in->data()), to));
    queue->copy(found.data(), to, out_bytes);
    queue->synchronize();
    EXPECT_EQ(std::memcmp(found.data(), wanted.data(), out_bytes), 0)
        << ranks << " ranks, " << count << " elements from " << offset << " on, "
        << name(reduction);
    if constexpr (std::is_same_v<Out, Wire>) {
      auto* const own = reinterpret_cast<Out*>(in->data()) + offset + (ranks - 1) * stride;
      execution::parallel_for(*queue, count,
                              reduce_of(reinterpret_cast<const Wire*>(in->data()), own));
      queue->copy(found.data(), own, out_bytes);
      queue->synchronize();
      EXPECT_EQ(std::memcmp(found.data(), wanted.data(), out_bytes), 0)
          << ranks << " ranks, " << count << " elements from " << offset << " on, "
          << name(reduction) << ", into the own row";
    }
  }

  template <class Out, class Wire, class A>
  void check_all() {
    for (const std::int64_t count : {1, 31, 64, 1000, 4096, 70001, 3 << 20})
      for (const std::int64_t offset : {0, 3, 8})
        for (const int ranks : {2, 3, 4, 8}) {
          check<Out, Wire, A>(ranks, ranks / 2, count, offset, Reduction::sum);
          if (count == 1000) check<Out, Wire, A>(ranks, 0, count, offset, Reduction::min);
          if (count == 1000) check<Out, Wire, A>(ranks, ranks - 1, count, offset, Reduction::max);
        }
  }

  std::unique_ptr<execution::Backend> backend;
  std::unique_ptr<execution::Queue> queue;
};

TEST_F(rank_order_reduce_gpu, is_the_hosts_in_fp32) { check_all<float, float, float>(); }
TEST_F(rank_order_reduce_gpu, is_the_hosts_in_bf16) { check_all<Bf16, Bf16, float>(); }
TEST_F(rank_order_reduce_gpu, is_the_hosts_of_rounded_rows) { check_all<float, Bf16, float>(); }
TEST_F(rank_order_reduce_gpu, rounds_as_the_host) {
  for (const std::int64_t count : {1, 1000, 70001})
    for (const std::int64_t offset : {0, 3})
      check<Bf16, float, float>(1, 0, count, offset, Reduction::sum);
}
TEST_F(rank_order_reduce_gpu, is_the_hosts_in_fp64) { check_all<double, double, double>(); }
TEST_F(rank_order_reduce_gpu, is_the_hosts_of_counts) {
  check_all<std::int32_t, std::int32_t, std::int32_t>();
  check_all<std::int64_t, std::int64_t, std::int64_t>();
}

TEST_F(rank_order_reduce_gpu, overlapping_copies_are_whole) {
  constexpr std::size_t kMost = (40 << 20) + 5, kMargin = 64;
  std::vector<unsigned char> given(kMost + kMargin), found(given.size());
  for (std::size_t i = 0; i < given.size(); ++i) given[i] = static_cast<unsigned char>(i * 167 + 3);
  const auto from = backend->allocate(MemoryKind::device, given.size());
  const auto to = backend->allocate(MemoryKind::device, given.size());
  queue->copy(from->data(), given.data(), given.size());
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{16}, std::size_t{4097}, kMost})
    for (const std::size_t offset : {0, 16, 5}) {
      ASSERT_EQ(cudaMemset(to->data(), 0, given.size()), cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // the queue does not wait for it
      detail::overlapping_copy(*queue, to->data() + offset, from->data() + offset, bytes);
      queue->copy(found.data(), to->data(), found.size());
      queue->synchronize();
      EXPECT_EQ(std::memcmp(found.data() + offset, given.data() + offset, bytes), 0)
          << bytes << " from " << offset << " on";
      EXPECT_EQ(found[offset + bytes], 0) << bytes << " from " << offset << " on";
    }
}

}  // namespace
}  // namespace stowage::parallel
