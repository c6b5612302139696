// The portable elementwise loop on the host.
#include "execution/parallel_for.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "ctest/execution/scale_rows_data.hpp"
#include "execution/backend.hpp"

namespace stowage::execution {
namespace {

TEST(parallel_for, runs_a_functor_on_the_host) {
  const auto backend = make_host_backend();
  const auto queue = backend->make_queue(Lane::compute, "compute");
  ScaleRowsData data;
  parallel_for(*queue, kCount,
               ScaleRows{data.in.data(), data.scale.data(), data.out.data(), kColumns});
  queue->synchronize();
  data.check();
}

TEST(parallel_for, is_captured_into_a_graph) {
  const auto backend = make_host_backend();
  const auto queue = backend->make_queue(Lane::compute, "compute");
  ScaleRowsData data;
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

}  // namespace
}  // namespace stowage::execution
