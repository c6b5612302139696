// Replay of graphs on the host backend. What capture refuses is in host_capture_test.cpp.
#include <algorithm>
#include <atomic>

#include "ctest/execution/host_support.hpp"

namespace stowage::execution {
namespace {

class host_graph : public HostBackendTest {
 protected:
  /// Captures what `work` enqueues, starting on the compute queue.
  template <class F>
  std::unique_ptr<Graph> capture(F&& work) {
    backend->begin_capture(*compute);
    work();
    return backend->end_capture(*compute);
  }
  void fork(Queue& to) {
    compute->record(*forked);
    to.wait(*forked);
  }
  void join(Queue& from) {
    from.record(*joined);
    compute->wait(*joined);
  }

  std::unique_ptr<Event> forked = backend->make_event();
  std::unique_ptr<Event> joined = backend->make_event();
  std::unique_ptr<Event> event = backend->make_event();
};
INSTANTIATE_TEST_SUITE_P(, host_graph, testing::Values(0, 1, 2));

TEST_P(host_graph, captured_work_runs_only_at_launch) {
  int runs = 0;
  const auto graph = capture([&] { compute->enqueue([&] { ++runs; }); });
  compute->synchronize();
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(graph->nodes(), 1U);
  for (int i = 0; i < 3; ++i) graph->launch(*compute);
  compute->synchronize();
  EXPECT_EQ(runs, 3);
}

TEST_P(host_graph, keeps_the_order_of_a_queue_and_of_a_joined_fork) {
  Log log;
  const auto graph = capture([&] {
    compute->enqueue([&] { log.add("a"); });
    fork(*d2h);
    d2h->enqueue([&] { log.add("b"); });
    join(*d2h);
    compute->enqueue([&] { log.add("c"); });
  });
  graph->launch(*compute);
  graph->launch(*compute);
  compute->synchronize();
  EXPECT_EQ(log.entries(), (std::vector<std::string>{"a", "b", "c", "a", "b", "c"}));
}

TEST_P(host_graph, copy_branch_overlaps_compute) {
  Gate gate;
  std::thread::id compute_id, copy_id;
  const auto graph = capture([&] {
    fork(*d2h);
    compute->enqueue([&] {
      compute_id = std::this_thread::get_id();
      gate.pass();  // opened by the copy branch: hangs if the two do not overlap
    });
    d2h->enqueue([&] {
      copy_id = std::this_thread::get_id();
      gate.open();
    });
    join(*d2h);
  });
  graph->launch(*compute);
  compute->synchronize();
  EXPECT_NE(compute_id, copy_id);
}

TEST_P(host_graph, launch_is_in_order_in_its_queue) {
  Log log;
  const auto graph = capture([&] { compute->enqueue([&] { log.add("graph"); }); });
  compute->enqueue([&] { log.add("before"); });
  graph->launch(*compute);
  compute->enqueue([&] { log.add("after"); });
  compute->synchronize();
  EXPECT_EQ(log.entries(), (std::vector<std::string>{"before", "graph", "after"}));
}

TEST_P(host_graph, may_be_launched_on_another_queue) {
  Log log;
  Gate gate;
  const auto graph = capture([&] { compute->enqueue([&] { log.add("graph"); }); });
  d2h->enqueue([&] {
    gate.pass();
    log.add("before");
  });
  graph->launch(*d2h);
  compute->synchronize();
  EXPECT_TRUE(log.entries().empty());
  gate.open();
  d2h->synchronize();
  EXPECT_EQ(log.entries(), (std::vector<std::string>{"before", "graph"}));
}

TEST_P(host_graph, copy_queue_itself_is_not_ordered_with_the_graph) {
  // d2h takes part in the capture; its own work is ordered with the graph only through events.
  Gate gate;
  const auto graph = capture([&] {
    fork(*d2h);
    d2h->enqueue([&] { gate.pass(); });
    join(*d2h);
    compute->enqueue([] {});
  });
  graph->launch(*compute);
  d2h->synchronize();  // hangs if the node were in the queue
  gate.open();
  compute->synchronize();
}

TEST_P(host_graph, never_overlaps_itself) {
  std::atomic<int> inside = 0, most = 0;
  const auto graph = capture([&] {
    compute->enqueue([] {});
    fork(*d2h);
    d2h->enqueue([&] {
      most = std::max(most.load(), ++inside);
      let_mistakes_happen();
      --inside;
    });
    join(*d2h);
  });
  for (Queue* queue : {compute.get(), second.get(), h2d.get()}) graph->launch(*queue);
  for (Queue* queue : {compute.get(), second.get(), h2d.get()}) queue->synchronize();
  EXPECT_EQ(most, 1);
}

TEST_P(host_graph, two_graphs_on_two_queues_overlap) {
  Gate gate;
  const auto waits = capture([&] {
    fork(*d2h);
    d2h->enqueue([&] { gate.pass(); });
    join(*d2h);
  });
  const auto opens = capture([&] {
    fork(*h2d);
    h2d->enqueue([&] { gate.open(); });
    join(*h2d);
  });
  waits->launch(*compute);
  opens->launch(*second);  // hangs if the first held it
  compute->synchronize();
  second->synchronize();
}

TEST_P(host_graph, empty_one_can_be_launched) {
  const auto graph = capture([] {});
  EXPECT_EQ(graph->nodes(), 0U);
  bool ran = false;
  compute->enqueue([&] { ran = true; });
  graph->launch(*compute);
  compute->synchronize();
  EXPECT_TRUE(ran);
}

TEST_P(host_graph, record_after_a_launch_covers_all_its_branches) {
  int value = 0, seen = -1;
  const auto graph = capture([&] {
    fork(*d2h);
    d2h->enqueue([&] {
      let_mistakes_happen();
      value = 4;
    });
    join(*d2h);
  });
  graph->launch(*compute);
  compute->record(*event);
  h2d->wait(*event);
  h2d->enqueue([&] { seen = value; });
  h2d->synchronize();
  EXPECT_EQ(seen, 4);
}

TEST_P(host_graph, external_wait_acts_on_the_latest_record_before_each_launch) {
  int value = 0;
  std::vector<int> seen;
  const auto graph = capture([&] {
    compute->wait(*event, EventUse::external);
    compute->enqueue([&] { seen.push_back(value); });
  });
  EXPECT_EQ(graph->nodes(), 2U);
  for (int step = 1; step <= 3; ++step) {
    compute->record(*joined);
    h2d->wait(*joined);  // the previous launch has read `value`
    h2d->enqueue([&, step] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      value = step;
    });
    h2d->record(*event);
    graph->launch(*compute);
  }
  compute->synchronize();
  EXPECT_EQ(seen, (std::vector<int>{1, 2, 3}));
}

TEST_P(host_graph, external_wait_without_record_is_no_wait) {
  bool ran = false;
  const auto graph = capture([&] {
    compute->wait(*event, EventUse::external);
    compute->enqueue([&] { ran = true; });
  });
  graph->launch(*compute);
  compute->synchronize();
  EXPECT_TRUE(ran);
}

TEST_P(host_graph, external_record_releases_others_before_the_graph_ends) {
  Gate gate;
  int value = 0, seen = -1;
  const auto graph = capture([&] {
    compute->enqueue([&] { value = 6; });
    compute->record(*event, EventUse::external);
    compute->enqueue([] {});
    fork(*h2d);
    h2d->enqueue([&] { gate.pass(); });  // holds the end of the graph, not the compute thread
    join(*h2d);
  });
  EXPECT_TRUE(event->done());  // capturing it was no record
  graph->launch(*compute);
  d2h->wait(*event);
  d2h->enqueue([&] { seen = value; });
  d2h->synchronize();  // hangs if the record meant the end of the launch
  EXPECT_EQ(seen, 6);
  gate.open();
  compute->synchronize();
}

TEST_P(host_graph, external_record_of_a_copy_tail_orders_the_next_segment) {
  // A copy that outlives its segment: the next segment, on another queue, waits for the event.
  Gate gate;
  int cargo = 0, landed = 0, seen = -1;
  const auto first = capture([&] {
    compute->enqueue([&] { cargo = 9; });
    fork(*d2h);
    d2h->enqueue([&] {
      gate.pass();
      landed = cargo;
    });
    d2h->record(*event, EventUse::external);
    join(*d2h);
  });
  backend->begin_capture(*second);
  second->enqueue([] {});
  second->wait(*event, EventUse::external);
  second->enqueue([&] { seen = landed; });
  const auto next = backend->end_capture(*second);
  first->launch(*compute);
  next->launch(*second);
  let_mistakes_happen();
  gate.open();
  second->synchronize();
  compute->synchronize();
  EXPECT_EQ(seen, 9);
}

TEST_P(host_graph, outlives_its_queues_and_events) {
  int runs = 0;
  auto copies = backend->make_queue(Lane::d2h, "copies");
  const auto graph = capture([&] {
    fork(*copies);
    copies->enqueue([&] { ++runs; });
    copies->record(*event, EventUse::external);
    join(*copies);
  });
  copies.reset();
  event.reset();
  forked.reset();
  graph->launch(*compute);
  compute->synchronize();
  EXPECT_EQ(runs, 1);
}

TEST_P(host_graph, destruction_waits_for_the_last_launch) {
  std::atomic<bool> ran = false;
  auto graph = capture([&] {
    compute->enqueue([&] {
      let_mistakes_happen();
      ran = true;
    });
  });
  graph->launch(*compute);
  graph.reset();
  EXPECT_TRUE(ran);
}

TEST_P(host_graph, error_in_a_node_is_rethrown) {
  bool ran = false;
  const auto graph = capture([&] {
    compute->enqueue([] { throw Error(Exit::runtime, "node failed"); });
    compute->enqueue([&] { ran = true; });
  });
  graph->launch(*compute);
  EXPECT_ERROR(compute->synchronize(), "node failed");
  EXPECT_FALSE(ran);
}

TEST_P(host_graph, copies_are_captured_by_address) {
  int from = 1, to = 0;
  const auto graph = capture([&] { compute->copy(&to, &from, sizeof from); });
  from = 42;
  graph->launch(*compute);
  compute->synchronize();
  EXPECT_EQ(to, 42);
}

TEST_P(host_graph, replays_equal_eager_runs) {
  // A recurrence over two lanes whose value depends on the order of every operation.
  const auto run = [&](bool graphed) {
    std::uint64_t state = 1, saved = 0;
    const auto issue = [&] {
      for (std::uint64_t i = 0; i < 8; ++i) {
        compute->enqueue([&, i] { state = state * 6364136223846793005ULL + i; });
        fork(*d2h);
        d2h->enqueue([&] { saved = saved * 31 + state; });
        join(*d2h);
        compute->enqueue([&] { state ^= saved; });
      }
    };
    if (graphed) {
      const auto graph = capture(issue);
      for (int step = 0; step < 4; ++step) graph->launch(*compute);
    } else {
      for (int step = 0; step < 4; ++step) issue();
    }
    compute->synchronize();
    return state;
  };
  EXPECT_EQ(run(true), run(false));
}

}  // namespace
}  // namespace stowage::execution
