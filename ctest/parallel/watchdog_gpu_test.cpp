// The watchdog over words that a GPU writes around work that does not end, also inside a graph.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <future>
#include <new>

#include "execution/cuda_backend.hpp"
#include "parallel/watch/progress_launch.hpp"
#include "parallel/watch/watchdog.hpp"

namespace stowage::parallel {
namespace {

using namespace std::chrono_literals;
using execution::Lane;
using execution::MemoryKind;

class watchdog_gpu : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
    backend = execution::make_cuda_backend();
    queue = backend->make_queue(Lane::comm, "comm");
    memory = backend->allocate(MemoryKind::host, sizeof(ProgressWords));
    words = new (memory->data()) ProgressWords;
  }

  /// A collective that ends when the test says so: a host function holds up the queue.
  void enqueue_collective(int index) {
    auto* stream = static_cast<cudaStream_t>(queue->stream());
    ASSERT_EQ(launch_progress({words, static_cast<std::uint64_t>(index), true, false}, stream),
              cudaSuccess);
    const auto wait = [](void* held) { static_cast<std::shared_future<void>*>(held)->wait(); };
    ASSERT_EQ(cudaLaunchHostFunc(stream, wait, &gate), cudaSuccess);
    ASSERT_EQ(launch_progress({words, 0, false, true}, stream), cudaSuccess);
  }

  /// Waits for the alarm, lets the collective end, and returns what was told.
  std::string alarm() {
    EXPECT_EQ(heard.wait_for(10s), std::future_status::ready);
    const volatile ProgressWords& seen = *words;
    EXPECT_EQ(seen.begun, seen.ended + 1);
    open.set_value();
    queue->synchronize();
    EXPECT_EQ(seen.begun, seen.ended);
    return heard.wait_for(0s) == std::future_status::ready ? heard.get() : "";
  }

  std::unique_ptr<execution::Backend> backend;
  std::unique_ptr<execution::Queue> queue;
  std::unique_ptr<execution::Arena> memory;
  ProgressWords* words = nullptr;
  std::promise<void> open;
  std::shared_future<void> gate = open.get_future().share();
  std::promise<std::string> told;
  std::future<std::string> heard = told.get_future();
};

TEST_F(watchdog_gpu, names_what_is_stuck) {
  Watchdog dog(*words, "data", Watchdog::Seconds(0.3),
               [this](const std::string& what) { told.set_value(what); });
  (void)dog.announce("all_reduce/a");
  enqueue_collective(dog.announce("all_reduce/b"));
  EXPECT_NE(alarm().find("all_reduce/b of group data"), std::string::npos);
}

TEST_F(watchdog_gpu, names_what_is_stuck_inside_a_graph) {
  Watchdog dog(*words, "data", Watchdog::Seconds(0.3),
               [this](const std::string& what) { told.set_value(what); });
  (void)dog.announce("all_reduce/a");
  backend->begin_capture(*queue);
  enqueue_collective(dog.announce("all_reduce/b"));
  const auto graph = backend->end_capture(*queue);
  EXPECT_FALSE(heard.wait_for(600ms) == std::future_status::ready) << "captured is not begun";
  graph->launch(*queue);
  const std::string what = alarm();
  EXPECT_NE(what.find("all_reduce/b of group data"), std::string::npos) << what;
  EXPECT_NE(what.find("number 1 of this rank, 0 ended"), std::string::npos) << what;
}

}  // namespace
}  // namespace stowage::parallel
