#include "ctest/kernels/attention_gpu_support.hpp"

// The same inputs give the same bits: over many runs, eagerly and replayed as a graph, whatever the
// order in which blocks drew their tiles.
namespace stowage::kernels::test {
namespace {

void expect_same(const AttentionResults& actual, const AttentionResults& expected) {
  ASSERT_EQ(actual.o, expected.o);
  ASSERT_EQ(actual.lse, expected.lse);
  ASSERT_EQ(actual.gradient, expected.gradient);
}

AttentionCase large_case(std::int64_t head_dim) {
  return {attention_shape(4, 2, head_dim), Packed({900, 1, 0, 333, 128, 1, 640, 257, 64}, 40)};
}

TEST(attention_bits_gpu, hundred_runs) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t p : {64, 128, 40})
    for (const std::int64_t pairs : {0, 1}) {  // all stored; some computed twice
      AttentionCase c = large_case(p);
      c.shape.pairs = pairs;
      const AttentionProblem problem(random, c);
      DeviceAttention device(problem);
      Gpu gpu;
      AttentionResults first;
      for (int run = 0; run < 100; ++run) {
        device.poison();
        device.forward(*gpu.queue);
        device.backward(*gpu.queue);
        gpu.queue->synchronize();
        if (run == 0) {
          first = device.results();
        } else {
          SCOPED_TRACE("run " + std::to_string(run));
          expect_same(device.results(), first);
        }
        if (HasFatalFailure()) return;
      }
    }
}

TEST(attention_bits_gpu, replayed_graph) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t p : {64, 128, 40}) {
    const AttentionCase c = large_case(p);
    const AttentionProblem problem(random, c);
    DeviceAttention device(problem);
    Gpu gpu;
    gpu.backend->begin_capture(*gpu.queue);
    device.forward(*gpu.queue);
    device.backward(*gpu.queue);
    const auto graph = gpu.backend->end_capture(*gpu.queue);
    // The graph serves other documents of the same capacity.
    for (const Packed& packed : {c.packed, Packed({0, 0, 2324, 0, 40, 0, 0, 0, 0}),
                                 Packed({5, 5, 5, 5, 5, 5, 5, 5, 5}, 2319)}) {
      device.set_documents(packed);
      device.poison();
      device.forward(*gpu.queue);
      device.backward(*gpu.queue);
      gpu.queue->synchronize();
      const AttentionResults eager = device.results();
      for (int replay = 0; replay < 3; ++replay) {
        device.poison();
        graph->launch(*gpu.queue);
        gpu.queue->synchronize();
        expect_same(device.results(), eager);
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace stowage::kernels::test
