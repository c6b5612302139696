// Capture on the host backend refuses what CUDA's stream capture refuses (in its thread-local
// mode); each rule has its test. One rule is stricter: CUDA lets other threads enqueue on a
// captured stream.
#include "ctest/execution/host_support.hpp"

namespace stowage::execution {
namespace {

class host_capture : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend = make_host_backend();
  std::unique_ptr<Queue> compute = backend->make_queue(Lane::compute, "compute");
  std::unique_ptr<Queue> second = backend->make_queue(Lane::compute, "second");
  std::unique_ptr<Queue> d2h = backend->make_queue(Lane::d2h, "d2h");
  std::unique_ptr<Event> event = backend->make_event();
  std::unique_ptr<Event> other = backend->make_event();

  void fork_copy() {
    compute->record(*event);
    d2h->wait(*event);
    d2h->enqueue([] {});
  }
};

TEST_F(host_capture, unjoined_fork_is_refused) {
  backend->begin_capture(*compute);
  fork_copy();
  EXPECT_ERROR(backend->end_capture(*compute), "queue 'd2h' was not joined");
}

TEST_F(host_capture, work_after_the_join_is_unjoined) {
  backend->begin_capture(*compute);
  fork_copy();
  d2h->record(*event);
  compute->wait(*event);
  d2h->enqueue([] {});
  EXPECT_ERROR(backend->end_capture(*compute), "queue 'd2h' was not joined");
}

TEST_F(host_capture, fork_joined_through_a_third_queue_is_accepted) {
  backend->begin_capture(*compute);
  fork_copy();
  d2h->record(*event);
  second->wait(*event);
  second->enqueue([] {});
  second->record(*event);
  compute->wait(*event);
  EXPECT_EQ(backend->end_capture(*compute)->nodes(), 2U);
}

TEST_F(host_capture, external_record_does_not_join) {
  backend->begin_capture(*compute);
  fork_copy();
  d2h->record(*event, EventUse::external);
  compute->wait(*event, EventUse::external);
  EXPECT_ERROR(backend->end_capture(*compute), "was not joined");
}

TEST_F(host_capture, foreign_event_is_refused) {
  d2h->enqueue([] {});
  d2h->record(*other);
  d2h->synchronize();  // even one that is done: the graph would never wait for it again
  backend->begin_capture(*compute);
  EXPECT_ERROR(compute->wait(*other), "outside of the capture");
  EXPECT_ERROR(backend->end_capture(*compute), "outside of the capture");
}

TEST_F(host_capture, event_never_recorded_is_no_wait) {
  backend->begin_capture(*compute);
  compute->wait(*other);
  EXPECT_EQ(backend->end_capture(*compute)->nodes(), 0U);
}

TEST_F(host_capture, event_of_another_capture_is_refused) {
  backend->begin_capture(*compute);
  backend->begin_capture(*second);
  compute->enqueue([] {});
  compute->record(*event);
  EXPECT_ERROR(second->wait(*event), "another capture");
  EXPECT_ERROR(backend->end_capture(*second), "another capture");
  EXPECT_ERROR(backend->end_capture(*compute), "another capture");
}

TEST_F(host_capture, event_of_an_ended_capture_is_refused) {
  backend->begin_capture(*compute);
  compute->enqueue([] {});
  compute->record(*event);
  (void)backend->end_capture(*compute);
  EXPECT_ERROR(d2h->wait(*event), "has ended");
  EXPECT_ERROR(event->synchronize(), "capture");
  compute->record(*event);  // a new record makes it usable again
  d2h->wait(*event);
  event->synchronize();
}

TEST_F(host_capture, synchronize_of_a_captured_queue_is_refused) {
  backend->begin_capture(*compute);
  EXPECT_ERROR(compute->synchronize(), "was synchronized");
  EXPECT_ERROR(backend->end_capture(*compute), "was synchronized");
}

TEST_F(host_capture, synchronize_of_a_forked_queue_is_refused) {
  backend->begin_capture(*compute);
  fork_copy();
  EXPECT_ERROR(d2h->synchronize(), "was synchronized");
  EXPECT_ERROR(backend->end_capture(*compute), "was synchronized");
}

TEST_F(host_capture, synchronize_of_any_other_queue_is_refused) {
  backend->begin_capture(*compute);
  EXPECT_ERROR(d2h->synchronize(), "was synchronized");
  EXPECT_ERROR(backend->end_capture(*compute), "was synchronized");
  d2h->synchronize();
}

TEST_F(host_capture, asking_for_any_other_event_is_refused) {
  d2h->record(*other);
  backend->begin_capture(*compute);
  EXPECT_ERROR((void)other->done(), "asked for an event");
  EXPECT_ERROR(other->synchronize(), "asked for an event");
  EXPECT_ERROR(backend->end_capture(*compute), "asked for an event");
  EXPECT_TRUE(other->done());
}

TEST_F(host_capture, another_thread_may_wait_for_other_work) {
  backend->begin_capture(*compute);
  std::thread([&] {
    bool ran = false;
    d2h->enqueue([&] { ran = true; });
    d2h->synchronize();
    EXPECT_TRUE(ran);
  }).join();
  EXPECT_EQ(backend->end_capture(*compute)->nodes(), 0U);
}

TEST_F(host_capture, other_queues_run_meanwhile) {
  Gate gate;
  backend->begin_capture(*compute);
  second->enqueue([&] { gate.open(); });
  second->record(*other);
  d2h->wait(*other);
  gate.pass();
  EXPECT_EQ(backend->end_capture(*compute)->nodes(), 0U);
}

TEST_F(host_capture, synchronize_of_a_captured_event_is_refused) {
  backend->begin_capture(*compute);
  compute->record(*event);
  EXPECT_ERROR(event->synchronize(), "asked for an event");
  EXPECT_ERROR(backend->end_capture(*compute), "asked for an event");
}

TEST_F(host_capture, query_of_a_captured_event_is_refused) {
  backend->begin_capture(*compute);
  compute->record(*event);
  EXPECT_ERROR((void)event->done(), "asked for an event");
  EXPECT_ERROR(backend->end_capture(*compute), "asked for an event");
}

TEST_F(host_capture, use_from_another_thread_is_refused) {
  backend->begin_capture(*compute);
  std::thread([&] {
    EXPECT_ERROR(compute->enqueue([] {}), "another host thread");
    EXPECT_ERROR(compute->record(*event), "another host thread");
    EXPECT_ERROR((void)backend->end_capture(*compute), "another host thread");
  }).join();
  EXPECT_EQ(backend->end_capture(*compute)->nodes(), 0U);
}

TEST_F(host_capture, must_end_where_it_began) {
  backend->begin_capture(*compute);
  fork_copy();
  EXPECT_ERROR(backend->end_capture(*d2h), "ended on queue 'd2h'");
  EXPECT_ERROR(backend->end_capture(*compute), "ended on queue 'd2h'");
}

TEST_F(host_capture, cannot_begin_twice) {
  backend->begin_capture(*compute);
  EXPECT_ERROR(backend->begin_capture(*compute), "captured already");
  EXPECT_EQ(backend->end_capture(*compute)->nodes(), 0U);
}

TEST_F(host_capture, cannot_end_without_begin) {
  EXPECT_ERROR(backend->end_capture(*compute), "no capture");
}

TEST_F(host_capture, launch_inside_a_capture_is_refused) {
  backend->begin_capture(*second);
  const auto graph = backend->end_capture(*second);
  backend->begin_capture(*compute);
  EXPECT_ERROR(graph->launch(*compute), "a graph was launched");
  EXPECT_ERROR(backend->end_capture(*compute), "a graph was launched");
}

TEST_F(host_capture, forked_queue_may_be_destroyed_once_joined) {
  backend->begin_capture(*compute);
  fork_copy();
  d2h->record(*event);
  compute->wait(*event);
  d2h.reset();
  EXPECT_EQ(backend->end_capture(*compute)->nodes(), 1U);
}

TEST_F(host_capture, destroying_its_queue_ends_it) {
  backend->begin_capture(*compute);
  fork_copy();
  compute.reset();
  d2h->synchronize();  // a plain queue again
  EXPECT_ERROR(second->wait(*event), "has ended");
}

TEST_F(host_capture, fork_without_work_needs_no_join) {
  backend->begin_capture(*compute);
  compute->enqueue([] {});
  compute->record(*event);
  d2h->wait(*event);
  EXPECT_EQ(backend->end_capture(*compute)->nodes(), 1U);
}

TEST_F(host_capture, queues_are_usable_after_a_failed_capture) {
  backend->begin_capture(*compute);
  fork_copy();
  EXPECT_ERROR(backend->end_capture(*compute), "not joined");
  int runs = 0;
  compute->enqueue([&] { ++runs; });
  compute->synchronize();
  d2h->enqueue([&] { ++runs; });
  d2h->synchronize();
  EXPECT_EQ(runs, 2);
}

TEST_F(host_capture, work_before_the_capture_is_not_part_of_it) {
  Gate gate;
  int before = 0;
  d2h->enqueue([&] {
    gate.pass();
    ++before;
  });
  backend->begin_capture(*compute);
  fork_copy();
  d2h->record(*event);
  compute->wait(*event);
  const auto graph = backend->end_capture(*compute);
  graph->launch(*compute);
  gate.open();
  compute->synchronize();
  d2h->synchronize();
  EXPECT_EQ(before, 1);
}

TEST_F(host_capture, external_use_outside_of_a_capture_is_refused) {
  EXPECT_ERROR(compute->record(*event, EventUse::external), "not captured");
  EXPECT_ERROR(compute->wait(*event, EventUse::external), "not captured");
}

TEST_F(host_capture, external_use_leaves_the_event_alone) {
  backend->begin_capture(*compute);
  compute->enqueue([] {});
  compute->record(*event, EventUse::external);
  compute->wait(*event);  // never recorded yet: no wait
  d2h->wait(*event);      // and no way into the capture
  EXPECT_EQ(backend->end_capture(*compute)->nodes(), 2U);
}

}  // namespace
}  // namespace stowage::execution
