// Graphs of the cuda backend: what the host backend's capture tests state, on CUDA itself.
#include "ctest/execution/cuda_support.hpp"

namespace stowage::execution {
namespace {

class cuda_capture : public CudaBackendTest {
 protected:
  void fork() {
    compute->record(*event);
    d2h->wait(*event);
    down(*d2h);
  }
  void join() {
    d2h->record(*event);
    compute->wait(*event);
  }
};

TEST_F(cuda_capture, a_graph_replays_on_new_content) {
  backend->begin_capture(*compute);
  up(*compute);
  across(*compute);
  fork();
  join();
  const auto graph = backend->end_capture(*compute);
  EXPECT_EQ(graph->nodes(), 3U);
  for (int round = 0; round < 5; ++round) {
    randomise();
    graph->launch(*compute);
    compute->synchronize();
    ASSERT_TRUE(arrived()) << "round " << round;
  }
}

TEST_F(cuda_capture, captured_work_does_not_run) {
  randomise();
  backend->begin_capture(*compute);
  up(*compute);
  across(*compute);
  down(*compute);
  const auto graph = backend->end_capture(*compute);
  compute->synchronize();
  EXPECT_FALSE(arrived());
}

TEST_F(cuda_capture, unjoined_fork_is_refused) {
  backend->begin_capture(*compute);
  up(*compute);
  fork();
  EXPECT_ERROR((void)backend->end_capture(*compute), "queue 'compute' failed");
  compute->synchronize();  // plain queues again
  d2h->synchronize();
}

TEST_F(cuda_capture, foreign_event_is_refused) {
  up(*h2d);
  h2d->record(*other);
  backend->begin_capture(*compute);
  EXPECT_ERROR(compute->wait(*other), "cudaStreamWaitEvent");
  EXPECT_ERROR((void)backend->end_capture(*compute), "failed");
}

TEST_F(cuda_capture, event_never_recorded_is_no_wait) {
  backend->begin_capture(*compute);
  compute->wait(*other);
  EXPECT_EQ(backend->end_capture(*compute)->nodes(), 0U);
}

TEST_F(cuda_capture, external_events_tie_a_graph_to_its_surroundings) {
  backend->begin_capture(*compute);
  compute->wait(*other, EventUse::external);
  across(*compute);
  compute->record(*event, EventUse::external);
  const auto graph = backend->end_capture(*compute);
  EXPECT_EQ(graph->nodes(), 3U);
  for (int round = 0; round < 20; ++round) {
    randomise();
    up(*h2d);
    h2d->record(*other);
    graph->launch(*compute);
    d2h->wait(*event);
    down(*d2h);
    d2h->synchronize();
    ASSERT_TRUE(arrived()) << "round " << round;
  }
}

TEST_F(cuda_capture, external_use_outside_of_a_capture_is_refused) {
  EXPECT_ERROR(compute->record(*event, EventUse::external), "not captured");
  EXPECT_ERROR(compute->wait(*event, EventUse::external), "not captured");
}

TEST_F(cuda_capture, synchronize_of_a_captured_queue_is_refused) {
  backend->begin_capture(*compute);
  EXPECT_ERROR(compute->synchronize(), "cudaStreamSynchronize");
  EXPECT_ERROR((void)backend->end_capture(*compute), "failed");
}

TEST_F(cuda_capture, cannot_begin_twice_or_end_without_begin) {
  EXPECT_ERROR((void)backend->end_capture(*compute), "no capture");
  backend->begin_capture(*compute);
  EXPECT_ERROR(backend->begin_capture(*compute), "captured already");
  EXPECT_EQ(backend->end_capture(*compute)->nodes(), 0U);
}

TEST_F(cuda_capture, destroying_its_queue_ends_it) {
  backend->begin_capture(*compute);
  fork();
  compute.reset();
  d2h->synchronize();
}

}  // namespace
}  // namespace stowage::execution
