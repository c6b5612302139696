// Events of the host backend have CUDA's semantics.
#include <algorithm>
#include <atomic>

#include "ctest/execution/host_support.hpp"

namespace stowage::execution {
namespace {

class host_event : public HostBackendTest {
 protected:
  std::unique_ptr<Event> event = backend->make_event();
  Gate gate;
};
INSTANTIATE_TEST_SUITE_P(, host_event, testing::Values(0, 1, 2));

TEST_P(host_event, without_record_is_done_and_no_wait) {
  EXPECT_TRUE(event->done());
  event->synchronize();
  compute->wait(*event);
  bool ran = false;
  compute->enqueue([&] { ran = true; });
  compute->synchronize();
  EXPECT_TRUE(ran);
}

TEST_P(host_event, timed_event_tells_when_it_happened) {
  const auto begin = backend->make_timed_event();
  const auto end = backend->make_timed_event();
  const double before_s = steady_seconds();
  compute->record(*begin);
  compute->enqueue([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  compute->record(*end);
  d2h->wait(*end);  // it orders queues like any other
  d2h->synchronize();
  const double after_s = steady_seconds();
  EXPECT_LE(before_s, begin->time_s());
  EXPECT_LE(end->time_s(), after_s);
  EXPECT_GE(end->time_s() - begin->time_s(), 5e-3);
}

TEST_P(host_event, wait_orders_two_queues) {
  int value = 0, seen = -1;
  compute->enqueue([&] { gate.pass(); });
  compute->enqueue([&] { value = 7; });
  compute->record(*event);
  d2h->wait(*event);
  d2h->enqueue([&] { seen = value; });
  let_mistakes_happen();
  gate.open();
  d2h->synchronize();
  EXPECT_EQ(seen, 7);
}

TEST_P(host_event, wait_enqueued_before_the_record_does_not_see_it) {
  d2h->wait(*event);  // no record yet in host order
  bool ran = false;
  d2h->enqueue([&] { ran = true; });
  compute->enqueue([&] { gate.pass(); });
  compute->record(*event);
  d2h->synchronize();  // hangs if the wait meant the later record
  EXPECT_TRUE(ran);
  gate.open();
  compute->synchronize();
}

TEST_P(host_event, later_record_does_not_hold_an_earlier_wait) {
  compute->record(*event);
  d2h->wait(*event);
  compute->enqueue([&] { gate.pass(); });
  compute->record(*event);
  d2h->enqueue([] {});
  d2h->synchronize();  // hangs if the wait meant the second record
  gate.open();
  compute->synchronize();
}

TEST_P(host_event, wait_means_the_latest_record) {
  compute->record(*event);
  compute->enqueue([&] { gate.pass(); });
  compute->record(*event);
  d2h->wait(*event);
  std::atomic<bool> ran = false;
  d2h->enqueue([&] { ran = true; });
  let_mistakes_happen();
  EXPECT_FALSE(ran);
  gate.open();
  d2h->synchronize();
  EXPECT_TRUE(ran);
}

TEST_P(host_event, record_moves_to_another_queue) {
  compute->enqueue([&] { gate.pass(); });
  compute->record(*event);
  d2h->enqueue([] {});
  d2h->record(*event);
  event->synchronize();  // hangs if it still meant the compute queue
  gate.open();
  compute->synchronize();
}

TEST_P(host_event, record_covers_the_waits_before_it) {
  const auto relay = backend->make_event();
  compute->enqueue([&] { gate.pass(); });
  compute->record(*event);
  d2h->wait(*event);
  d2h->record(*relay);  // no work between: the wait alone
  h2d->wait(*relay);
  std::atomic<bool> ran = false;
  h2d->enqueue([&] { ran = true; });
  let_mistakes_happen();
  EXPECT_FALSE(ran);
  EXPECT_FALSE(relay->done());
  gate.open();
  h2d->synchronize();
  EXPECT_TRUE(ran);
}

TEST_P(host_event, wait_holds_only_what_comes_after_it) {
  std::atomic<bool> before = false, after = false;
  compute->enqueue([&] { gate.pass(); });
  compute->record(*event);
  d2h->enqueue([&] { before = true; });
  const auto reached = backend->make_event();
  d2h->record(*reached);
  d2h->wait(*event);
  d2h->enqueue([&] { after = true; });
  reached->synchronize();
  EXPECT_TRUE(before);
  EXPECT_FALSE(after);
  gate.open();
  d2h->synchronize();
  EXPECT_TRUE(after);
}

TEST_P(host_event, done_and_synchronize_follow_the_record) {
  bool ran = false;
  compute->enqueue([&] {
    gate.pass();
    ran = true;
  });
  compute->record(*event);
  EXPECT_FALSE(event->done());
  gate.open();
  event->synchronize();
  EXPECT_TRUE(event->done());
  EXPECT_TRUE(ran);
}

TEST_P(host_event, several_queues_wait_for_one_record) {
  int value = 0, seen[3] = {};
  compute->enqueue([&] {
    gate.pass();
    value = 5;
  });
  compute->record(*event);
  Queue* queues[] = {second.get(), d2h.get(), h2d.get()};
  for (int i = 0; i < 3; ++i) {
    queues[i]->wait(*event);
    queues[i]->enqueue([&, i] { seen[i] = value; });
  }
  gate.open();
  for (Queue* queue : queues) queue->synchronize();
  for (const int s : seen) EXPECT_EQ(s, 5);
}

TEST_P(host_event, may_be_destroyed_while_waited_for) {
  int value = 0, seen = -1;
  compute->enqueue([&] {
    gate.pass();
    value = 3;
  });
  compute->record(*event);
  d2h->wait(*event);
  event.reset();
  d2h->enqueue([&] { seen = value; });
  gate.open();
  d2h->synchronize();
  EXPECT_EQ(seen, 3);
}

TEST_P(host_event, ping_pong_between_queues_keeps_order) {
  const auto back = backend->make_event();
  std::vector<int> order;
  for (int i = 0; i < 50; ++i) {
    compute->wait(*back);
    compute->enqueue([&order, i] { order.push_back(2 * i); });
    compute->record(*event);
    d2h->wait(*event);
    d2h->enqueue([&order, i] { order.push_back(2 * i + 1); });
    d2h->record(*back);
  }
  d2h->synchronize();
  ASSERT_EQ(order.size(), 100U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

}  // namespace
}  // namespace stowage::execution
