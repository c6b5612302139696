// The portable elementwise loop on a GPU, from the functor of the host's test.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "ctest/execution/scale_rows_data.hpp"
#include "execution/parallel_for.hpp"

namespace stowage::execution {
namespace {

/// A queue that is only a stream: what parallel_for needs of the cuda backend.
class StreamQueue final : public Queue {
 public:
  StreamQueue() { cudaStreamCreate(&stream_); }
  ~StreamQueue() override { cudaStreamDestroy(stream_); }
  void* stream() const override { return stream_; }
  void enqueue(execution::Function<void()>) override { FAIL() << "host work on a stream"; }
  void copy(void* to, const void* from, std::size_t bytes) override {
    cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_);
  }
  void copy_rows(void*, const void*, const CountedRows&) override { FAIL() << "rows to count"; }
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
  ScaleRowsData data;
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

}  // namespace
}  // namespace stowage::execution
