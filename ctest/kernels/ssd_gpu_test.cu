// The CUDA scan against the fp64 recurrence and its adjoint, and its bits against itself.

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>

#include "ctest/kernels/ssd_gpu_problem.cuh"
#include "ctest/support/seed.hpp"

namespace stowage::test {
namespace {

/// bf16 results of bf16 operands: a few independent roundings of at most 2^-9 each.
constexpr double kTolerance = 2 * 0x1p-8;
/// Of one head's row of one token, beside a row of average length where it is shorter than that.
constexpr double kRowTolerance = 2 * kTolerance;
/// Sums over tokens of terms of both signs lose some digits of those.
constexpr double kSumTolerance = 6 * 0x1p-8;
/// dD: fp32 sums of exact products.
constexpr double kSkipTolerance = 64 * 0x1p-24;

/// The largest error of a head's row of one token: what a few tokens lack, such as those behind the
/// edge of a segment whose entering state was forgotten, does not show in the error of all.
template <class T>
double worst_row_error(const std::vector<T>& out, std::size_t pitch,
                       const std::vector<double>& reference, std::size_t width,
                       std::size_t row_width) {
  std::vector<double> errors, norms;
  for (std::size_t row = 0; row < reference.size(); row += row_width) {
    double error = 0, norm = 0;
    for (std::size_t i = row; i < row + row_width; ++i) {
      const double difference = to_double(out[i / width * pitch + i % width]) - reference[i];
      error += difference * difference;
      norm += reference[i] * reference[i];
    }
    errors.push_back(error);
    norms.push_back(norm);
  }
  const double mean = std::accumulate(norms.begin(), norms.end(), 0.0) / norms.size();
  double worst = 0;
  for (std::size_t row = 0; row < errors.size(); ++row) {
    const double error = errors[row] / std::max(norms[row], mean);
    if (!(error <= worst)) worst = error;  // also if it is not a number
  }
  return std::sqrt(worst);
}

void compare(const Problem& p) {
  const ScanRun run(p, ctest::seed());
  const ScanReference reference(run);
  const Buffer<std::byte> forward(kernels::ssd_cuda_forward_workspace_bytes(run.shape));
  const Buffer<std::byte> backward(kernels::ssd_cuda_backward_workspace_bytes(run.shape));
  run.forward(nullptr, forward.get());
  run.backward(nullptr, backward.get());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);

  const auto dxbc = run.dxbc.host();
  const std::size_t columns = run.columns, width = run.width;
  const std::size_t group_width = std::size_t(p.groups) * p.state;
  const auto expect = [](const auto& got, std::size_t pitch, std::size_t first,
                         const Buffer<double>& expected, std::size_t count, double tolerance,
                         const char* what) {
    EXPECT_LT(relative_error(got, pitch, first, expected.host(), count), tolerance) << what;
  };
  expect(run.y.host(), width, 0, reference.y, width, kTolerance, "y");
  const std::size_t row = p.head_dim;
  EXPECT_LT(worst_row_error(run.y.host(), width, reference.y.host(), width, row), kRowTolerance)
      << "y";
  EXPECT_LT(worst_row_error(dxbc, columns, reference.dx.host(), width, row), kRowTolerance) << "dX";
  expect(run.final_state.host(), p.state, 0, reference.final_state, p.state, kTolerance,
         "final state");
  expect(dxbc, columns, 0, reference.dx, width, kTolerance, "dX");
  expect(dxbc, columns, width, reference.db, group_width, kTolerance, "dB");
  expect(dxbc, columns, width + group_width, reference.dc, group_width, kTolerance, "dC");
  expect(run.ddt_raw.host(), p.heads, 0, reference.ddt, p.heads, kTolerance, "ddt_raw");
  expect(run.dinitial.host(), p.state, 0, reference.dinitial, p.state, kTolerance, "dinitial");
  expect(run.da_log.host(), p.heads, 0, reference.da, p.heads, kSumTolerance, "dA_log");
  expect(run.ddt_bias.host(), p.heads, 0, reference.dbias, p.heads, kSumTolerance, "ddt_bias");
  expect(run.dd.host(), p.heads, 0, reference.dd, p.heads, kSkipTolerance, "dD");
}

TEST(ssd_gpu, less_than_a_chunk) {
  STOWAGE_NEED_WGMMA();
  // many heads, so that no gradient that is one number a head is small by chance
  compare({1, 16, 64, 2, 128, one_document(1), 1e-3, 0.1, 1, 16});
  compare({63, 16, 64, 2, 128, one_document(63), 1e-3, 0.1, 1, 16});
}

TEST(ssd_gpu, groups_and_ragged_heads) {
  STOWAGE_NEED_WGMMA();
  compare({777, 10, 64, 2, 128, one_document(777), 1e-3, 0.1, 1, 16});
}

TEST(ssd_gpu, documents_at_every_place_of_a_chunk) {
  STOWAGE_NEED_WGMMA();
  compare({2600, 4, 64, 2, 128, growing_documents(2600), 1e-3, 0.1, 1, 16, 3});
}

TEST(ssd_gpu, documents_of_one_token) {
  STOWAGE_NEED_WGMMA();
  std::vector<int> seq_idx(200);
  for (int t = 0; t < 200; ++t) seq_idx[t] = t;
  compare({200, 4, 64, 1, 64, seq_idx, 1e-2, 0.5, 1, 16});
}

TEST(ssd_gpu, head_dim_128_and_state_64) {
  STOWAGE_NEED_WGMMA();
  compare({500, 4, 128, 2, 64, growing_documents(500), 1e-3, 0.1, 1, 16});
}

TEST(ssd_gpu, segments_carry_long_memory) {
  STOWAGE_NEED_WGMMA();
  compare({4096, 4, 64, 1, 128, one_document(4096), 1e-4, 1e-3, 0.01, 0.1, 5});
}

TEST(ssd_gpu, two_segments) {
  STOWAGE_NEED_WGMMA();
  compare({2048, 8, 64, 2, 128, one_document(2048), 1e-3, 0.02, 0.1, 2, 2});
}

/// Segments of 32 chunks, of which some heads remember a few, some all.
TEST(ssd_gpu, memory_of_any_length) {
  STOWAGE_NEED_WGMMA();
  compare({6144, 8, 64, 2, 128, one_document(6144), 1e-4, 1e-3, 0.01, 0.1, 3});
  compare({6144, 16, 64, 2, 128, one_document(6144), 1e-3, 0.02, 0.2, 4, 3});
  std::vector<int> seq_idx(6000);  // boundaries on edges of segments, near them and between
  for (const int begin : {1024, 1536, 2048, 3583, 4096, 4609, 5121}) {
    for (int t = begin; t < 6000; ++t) ++seq_idx[t];
  }
  compare({6000, 16, 64, 2, 128, seq_idx, 1e-3, 0.02, 0.1, 2, 3});
}

/// Segments of 64 chunks in four pieces, of which some heads remember a few, some all, some none.
TEST(ssd_gpu, segments_in_pieces) {
  STOWAGE_NEED_WGMMA();
  compare({8192, 8, 64, 2, 128, one_document(8192), 1e-4, 1e-3, 0.01, 0.1, 2});
  compare({8192, 8, 64, 2, 128, one_document(8192), 1e-3, 0.02, 0.2, 4, 2});
  compare({8192, 8, 64, 2, 128, one_document(8192), 1e-3, 1e-2, 8, 16, 2});
  std::vector<int> seq_idx(8100);  // boundaries near edges of pieces, and between
  for (const int begin : {1024, 3071, 5121, 7000, 7168}) {
    for (int t = begin; t < 8100; ++t) ++seq_idx[t];
  }
  compare({8100, 8, 64, 2, 128, seq_idx, 1e-4, 1e-3, 0.01, 0.1, 2});
  seq_idx.assign(8192, 0);  // on edges
  for (const int begin : {3072, 5120}) {
    for (int t = begin; t < 8192; ++t) ++seq_idx[t];
  }
  compare({8192, 8, 64, 2, 128, seq_idx, 1e-4, 1e-3, 0.01, 0.1, 2});
}

/// Segments of 67 chunks: three pieces of 17 and one of 16.
TEST(ssd_gpu, pieces_of_unequal_length) {
  STOWAGE_NEED_WGMMA();
  compare({8576, 8, 64, 2, 128, one_document(8576), 1e-4, 1e-3, 0.01, 0.1, 2});
  compare({8576, 8, 64, 2, 64, one_document(8576), 1e-3, 0.02, 0.2, 4, 2});
}

/// More pieces before a segment, all of them remembered, than a warp has lanes; and just as many.
TEST(ssd_gpu, more_pieces_than_lanes) {
  STOWAGE_NEED_WGMMA();
  compare({20480, 4, 64, 1, 128, one_document(20480), 1e-4, 1e-3, 0.01, 0.1, 40});
  compare({16896, 4, 64, 1, 128, one_document(16896), 1e-4, 1e-3, 0.01, 0.1, 33});
}

/// Heads of three parts lie in two blocks each, of which one may keep a state that another forgets.
TEST(ssd_gpu, heads_that_two_blocks_share) {
  STOWAGE_NEED_WGMMA();
  for (int i = 0; i < 4; ++i)
    compare({8192, 8, 192, 2, 128, one_document(8192), 1e-4, 1e-2, 0.01, 16, 2});
}

/// Heads of 80 columns: units of 64 have strips of one head or of two.
TEST(ssd_gpu, heads_of_80_columns) {
  STOWAGE_NEED_WGMMA();
  compare({63, 16, 80, 2, 128, one_document(63), 1e-3, 0.1, 1, 16});
  compare({777, 16, 80, 1, 128, one_document(777), 1e-3, 0.1, 1, 16});  // blocks of all patterns
  compare({500, 8, 80, 2, 128, growing_documents(500), 1e-3, 0.1, 1, 16});
  compare({2600, 12, 80, 1, 128, growing_documents(2600), 1e-3, 0.1, 1, 16, 3});
  compare({1500, 16, 80, 2, 128, growing_documents(1500), 0.5, 2, 8, 16, 2});
}

/// Their blocks in segments of pieces, of which some heads remember a few, some all, some none.
TEST(ssd_gpu, heads_of_80_columns_in_pieces) {
  STOWAGE_NEED_WGMMA();
  compare({4096, 4, 80, 1, 128, one_document(4096), 1e-4, 1e-3, 0.01, 0.1, 5});
  compare({8192, 8, 80, 2, 128, one_document(8192), 1e-3, 0.02, 0.2, 4, 2});
  compare({8192, 8, 80, 2, 128, one_document(8192), 1e-3, 1e-2, 8, 16, 2});
  for (int i = 0; i < 2; ++i)
    compare({8192, 8, 80, 2, 128, one_document(8192), 1e-4, 1e-2, 0.01, 16, 2});
}

/// Neighbours whose states differ in magnitude share a unit, and a scale, in the backward.
TEST(ssd_gpu, heads_of_80_columns_of_unlike_magnitude) {
  STOWAGE_NEED_WGMMA();
  compare({1024, 8, 80, 1, 128, one_document(1024), 1e-6, 2, 0.01, 16, 2});
}

TEST(ssd_gpu, fast_decay) {
  STOWAGE_NEED_WGMMA();
  compare({1500, 8, 64, 2, 128, growing_documents(1500), 0.5, 2, 8, 16, 2});
}

TEST(ssd_gpu, clamped_steps) {
  STOWAGE_NEED_WGMMA();
  compare({600, 4, 64, 1, 128, one_document(600), 1e-2, 0.2, 1, 16, 1, 0.02F, 0.08F});
}

/// One piece of a sequence, as a rank of a context-parallel group has it.
struct Piece {
  int begin, tokens;
  const float* initial;  ///< state that enters
  const float* dfinal;   ///< gradient of the state that leaves
};

/// Runs a piece of `run`'s problem in place of the whole; returns the state that leaves, its
/// derivative by the state that enters, and that state's gradient.
struct PieceResult {
  PieceResult(const ScanRun& run, const Piece& piece)
      : final_state(run.matrix), total_decay(run.p.heads), dinitial(run.matrix) {
    SsdCudaShape shape = run.shape;
    shape.tokens = piece.tokens;
    const std::size_t begin = piece.begin;
    SsdCudaForward forward;
    SsdCudaBackward backward;
    forward.xbc = backward.xbc = run.xbc.get() + begin * run.columns;
    forward.dt_raw = backward.dt_raw = run.dt_raw.get() + begin * run.p.heads;
    forward.a_log = backward.a_log = run.a_log.get();
    forward.d = backward.d = run.d.get();
    forward.dt_bias = backward.dt_bias = run.dt_bias.get();
    forward.seq_idx = backward.seq_idx = run.seq_idx.get() + begin;
    forward.initial_state = backward.initial_state = piece.initial;
    forward.y = run.y.get() + begin * run.width;
    forward.final_state = final_state.get();
    forward.total_decay = total_decay.get();
    const Buffer<std::byte> room(std::max(kernels::ssd_cuda_forward_workspace_bytes(shape),
                                          kernels::ssd_cuda_backward_workspace_bytes(shape)));
    forward.workspace = backward.workspace = room.get();
    kernels::ssd_cuda_forward(shape, forward, nullptr);
    if (piece.dfinal != nullptr) {
      backward.dy = run.dy.get() + begin * run.width;
      backward.dfinal_state = piece.dfinal;
      backward.dxbc = run.dxbc.get() + begin * run.columns;
      backward.ddt_raw = run.ddt_raw.get() + begin * run.p.heads;
      backward.da_log = run.da_log.get();
      backward.dd = run.dd.get();
      backward.ddt_bias = run.ddt_bias.get();
      backward.dinitial_state = dinitial.get();
      kernels::ssd_cuda_backward(shape, backward, nullptr);
    }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  Buffer<float> final_state, total_decay, dinitial;
};

std::vector<double> as_doubles(const auto& values) {
  std::vector<double> all;
  for (const auto value : values) all.push_back(to_double(value));
  return all;
}

TEST(ssd_gpu, pieces_hand_the_state_on) {
  STOWAGE_NEED_WGMMA();
  std::vector<int> seq_idx = one_document(1100);
  for (int t = 300; t < 1100; ++t) seq_idx[t] = 1;  // the second document spans the cut
  const ScanRun run({1100, 8, 64, 2, 128, seq_idx, 1e-3, 0.02, 0.1, 1}, ctest::seed());
  const Buffer<std::byte> room(std::max(kernels::ssd_cuda_forward_workspace_bytes(run.shape),
                                        kernels::ssd_cuda_backward_workspace_bytes(run.shape)));
  run.forward(nullptr, room.get());
  run.backward(nullptr, room.get());
  const auto y = as_doubles(run.y.host()), dxbc = as_doubles(run.dxbc.host());
  const auto ddt = as_doubles(run.ddt_raw.host()), dinitial = as_doubles(run.dinitial.host());
  const auto final_state = as_doubles(run.final_state.host());

  const PieceResult first(run, {0, 700, run.initial.get(), nullptr});
  const PieceResult second(run, {700, 400, first.final_state.get(), run.dfinal.get()});
  const PieceResult back(run, {0, 700, run.initial.get(), second.dinitial.get()});
  const auto same = [](const auto& got, const std::vector<double>& whole, std::size_t width) {
    return relative_error(got, width, 0, whole, width);
  };
  EXPECT_LT(same(run.y.host(), y, run.width), kTolerance);
  EXPECT_LT(same(second.final_state.host(), final_state, 128), kTolerance);
  EXPECT_LT(same(run.dxbc.host(), dxbc, run.columns), kTolerance);
  EXPECT_LT(same(run.ddt_raw.host(), ddt, run.p.heads), kTolerance);
  EXPECT_LT(same(back.dinitial.host(), dinitial, 128), kTolerance);
}

void expect_total_decay(const Problem& problem) {
  const ScanRun run(problem, ctest::seed());
  const PieceResult with(run, {0, problem.tokens, run.initial.get(), nullptr});
  const PieceResult without(run, {0, problem.tokens, nullptr, nullptr});
  const auto decay = with.total_decay.host();
  const auto initial = run.initial.host(), rest = without.final_state.host();
  std::vector<double> expected(run.matrix);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] = rest[i] + static_cast<double>(decay[i / (problem.head_dim * 128)]) * initial[i];
  }
  // Tensor cores truncate sums as they add, once for 16 tokens, and unequal sums otherwise: the
  // same sums in fp32, truncated, differ by 2e-6 over 900 tokens and 2e-5 over 8192; rounded, by a
  // tenth and less.
  const double truncated = std::max(1e-5, problem.tokens / 16 * 0x1p-23);
  EXPECT_LT(relative_error(with.final_state.host(), 128, 0, expected, 128), truncated);
}

TEST(ssd_gpu, total_decay_is_what_the_entering_state_is_worth) {
  STOWAGE_NEED_WGMMA();
  expect_total_decay({900, 8, 64, 2, 128, one_document(900), 1e-4, 1e-3, 0.1, 2});
  // segments of four pieces, of which a head may remember one
  expect_total_decay({8192, 8, 64, 2, 128, one_document(8192), 1e-4, 1e-3, 0.1, 1, 2});
  expect_total_decay({8192, 8, 64, 2, 128, one_document(8192), 1e-3, 1e-2, 8, 16, 2});
  expect_total_decay({900, 8, 80, 2, 128, one_document(900), 1e-4, 1e-3, 0.1, 2});
}

__global__ void count_differences(const std::uint16_t* left, const std::uint16_t* right,
                                  std::size_t count, unsigned* differences) {
  const std::size_t step = std::size_t(gridDim.x) * blockDim.x;
  for (std::size_t i = std::size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    if (left[i] != right[i]) atomicAdd(differences, 1U);
  }
}

/// Results of a run as they were, to compare with after others.
class Bits {
 public:
  explicit Bits(const ScanRun& run)
      : parts_{part(run.y),      part(run.final_state), part(run.dxbc),     part(run.ddt_raw),
               part(run.da_log), part(run.dd),          part(run.ddt_bias), part(run.dinitial)},
        differences_(std::vector<unsigned>{0}) {
    for (Part& part : parts_) {
      part.kept = std::make_unique<Buffer<std::byte>>(part.bytes);
      EXPECT_EQ(cudaMemcpy(part.kept->get(), part.data, part.bytes, cudaMemcpyDeviceToDevice),
                cudaSuccess);
    }
  }
  /// Overwrites the results.
  void poison(cudaStream_t stream) const {
    for (const Part& part : parts_) cudaMemsetAsync(part.data, 0xFF, part.bytes, stream);
  }
  void compare(cudaStream_t stream) const {
    for (const Part& part : parts_) {
      count_differences<<<1024, 256, 0, stream>>>(
          static_cast<const std::uint16_t*>(part.data),
          reinterpret_cast<const std::uint16_t*>(part.kept->get()), part.bytes / 2,
          differences_.get());
    }
  }
  unsigned differences() const { return differences_.host().front(); }

 private:
  struct Part {
    void* data;
    std::size_t bytes;
    std::unique_ptr<Buffer<std::byte>> kept;
  };
  template <class T>
  static Part part(const Buffer<T>& buffer) {
    return {buffer.get(), buffer.count() * sizeof(T), nullptr};
  }
  std::array<Part, 8> parts_;
  Buffer<unsigned> differences_;
};

void expect_same_bits(const Problem& problem) {
  const ScanRun run(problem, 5);
  const Buffer<std::byte> forward(kernels::ssd_cuda_forward_workspace_bytes(run.shape));
  const Buffer<std::byte> backward(kernels::ssd_cuda_backward_workspace_bytes(run.shape));
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  const auto enqueue = [&] {
    run.forward(stream, forward.get());
    run.backward(stream, backward.get());
  };
  enqueue();
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  const Bits bits(run);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  enqueue();
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (int i = 0; i < 200; ++i) {
    bits.poison(stream);
    if (i < 100) {
      enqueue();
    } else {
      ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    }
    bits.compare(stream);
  }
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(bits.differences(), 0U);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST(ssd_gpu, same_bits_in_100_runs_and_100_graph_replays) {
  STOWAGE_NEED_WGMMA();
  expect_same_bits({4090, 64, 64, 8, 128, growing_documents(4090), 1e-3, 0.1, 1, 16});
  // two segments of four pieces, of which heads remember some or all
  expect_same_bits({8192, 32, 64, 2, 128, one_document(8192), 1e-4, 1e-2, 0.01, 4, 2});
  expect_same_bits({4090, 32, 80, 2, 128, growing_documents(4090), 1e-3, 0.1, 1, 16, 2});
}

}  // namespace
}  // namespace stowage::test
