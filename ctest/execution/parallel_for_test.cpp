// The portable elementwise loop, on both backends from one functor.
#include "execution/parallel_for.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "ctest/execution/scale_rows.hpp"
#include "execution/backend.hpp"

#if STOWAGE_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace stowage::execution {
namespace {

constexpr std::int64_t kRows = 37, kColumns = 1001, kCount = kRows * kColumns;

/// Inputs whose products are exact in fp32, and what comes out.
struct Data {
  Data() : in(kCount), scale(kRows), out(kCount, -1.0F) {
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 4096);
    for (std::size_t r = 0; r < scale.size(); ++r) scale[r] = static_cast<float>(r + 1);
  }
  void check() const {
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], in[i] * scale[i / kColumns]) << "element " << i;
  }
  std::vector<float> in, scale, out;
};

TEST(parallel_for, runs_a_functor_on_the_host) {
  const auto backend = make_host_backend();
  const auto queue = backend->make_queue(Lane::compute, "compute");
  Data data;
  parallel_for(*queue, kCount,
               ScaleRows{data.in.data(), data.scale.data(), data.out.data(), kColumns});
  queue->synchronize();
  data.check();
}

TEST(parallel_for, is_captured_into_a_graph) {
  const auto backend = make_host_backend();
  const auto queue = backend->make_queue(Lane::compute, "compute");
  Data data;
  backend->begin_capture(*queue);
  parallel_for(*queue, kCount,
               ScaleRows{data.in.data(), data.scale.data(), data.out.data(), kColumns});
  const auto graph = backend->end_capture(*queue);
  EXPECT_EQ(data.out.front(), -1.0F);
  graph->launch(*queue);
  queue->synchronize();
  data.check();
}

TEST(parallel_for, of_nothing_enqueues_nothing) {
  const auto backend = make_host_backend();
  const auto queue = backend->make_queue(Lane::compute, "compute");
  backend->begin_capture(*queue);
  parallel_for(*queue, 0, ScaleRows{});
  EXPECT_EQ(backend->end_capture(*queue)->nodes(), 0U);
}

#if STOWAGE_HAVE_CUDA
/// A queue that is only a stream: what parallel_for needs of the cuda backend.
class StreamQueue final : public Queue {
 public:
  StreamQueue() { cudaStreamCreate(&stream_); }
  ~StreamQueue() override { cudaStreamDestroy(stream_); }
  void* stream() const override { return stream_; }
  void enqueue(std::function<void()>) override { FAIL() << "host work on a stream"; }
  void copy(void* to, const void* from, std::size_t bytes) override {
    cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_);
  }
  void record(Event&, EventUse) override {}
  void wait(Event&, EventUse) override {}
  void synchronize() override { ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }

 private:
  cudaStream_t stream_ = nullptr;
};

TEST(parallel_for_gpu, runs_the_same_functor_on_a_stream) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
  StreamQueue queue;
  Data data;
  float *in = nullptr, *scale = nullptr, *out = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&in), kCount * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&scale), kRows * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&out), kCount * sizeof(float)), cudaSuccess);
  queue.copy(in, data.in.data(), kCount * sizeof(float));
  queue.copy(scale, data.scale.data(), kRows * sizeof(float));
  parallel_for(queue, kCount, ScaleRows{in, scale, out, kColumns});
  queue.copy(data.out.data(), out, kCount * sizeof(float));
  queue.synchronize();
  data.check();
  for (float* memory : {in, scale, out}) cudaFree(memory);
}
#endif

}  // namespace
}  // namespace stowage::execution
