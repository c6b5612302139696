// The CUDA scan against the fp64 recurrence and its adjoint, and its bits against itself.

#include <algorithm>
#include <cstring>

#include "ctest/kernels/gpu_support.cuh"
#include "ctest/kernels/ssd_reference.cuh"
#include "kernels/ssd/ssd_cuda.hpp"

namespace stowage::test {
namespace {

using kernels::SsdCudaBackward;
using kernels::SsdCudaForward;
using kernels::SsdCudaShape;
using Bf16 = __nv_bfloat16;

struct Problem {
  int tokens, heads, head_dim, groups, state;
  std::vector<int> seq_idx;
  double dt_low, dt_high, a_low, a_high;
  int segments = 0;
  float dt_min = 0, dt_max = 3e38F;
};

std::vector<int> one_document(int tokens) { return std::vector<int>(tokens, 0); }

/// Documents of 1, 2, 3, .. tokens: boundaries at every place of a chunk.
std::vector<int> growing_documents(int tokens) {
  std::vector<int> seq_idx;
  for (int document = 0; static_cast<int>(seq_idx.size()) < tokens; ++document) {
    seq_idx.insert(seq_idx.end(), document + 1, document);
  }
  seq_idx.resize(tokens);
  return seq_idx;
}

/// All inputs and outputs of a problem on the device.
struct ScanRun {
  explicit ScanRun(const Problem& problem, unsigned seed)
      : p(problem),
        generator(seed),
        width(p.heads * p.head_dim),
        columns(width + 2 * p.groups * p.state),
        matrix(std::size_t(width) * p.state),
        xbc(random_bf16(std::size_t(p.tokens) * columns, generator)),
        dt_raw(random_bf16(std::size_t(p.tokens) * p.heads, generator)),
        dy(random_bf16(std::size_t(p.tokens) * width, generator)),
        a_log(draw(p.a_low, p.a_high, false)),
        d(random_float(p.heads, 1, 0.1F, generator)),
        dt_bias(draw(p.dt_low, p.dt_high, true)),
        initial(random_float(matrix, 0, 1, generator)),
        dfinal(random_float(matrix, 0, 1, generator)),
        seq_idx(p.seq_idx),
        y(std::size_t(p.tokens) * width),
        final_state(matrix),
        dxbc(std::size_t(p.tokens) * columns),
        ddt_raw(std::size_t(p.tokens) * p.heads),
        da_log(p.heads),
        dd(p.heads),
        ddt_bias(p.heads),
        dinitial(matrix) {
    shape.tokens = p.tokens;
    shape.heads = p.heads;
    shape.head_dim = p.head_dim;
    shape.groups = p.groups;
    shape.state = p.state;
    shape.segments = p.segments;
    shape.dt_min = p.dt_min;
    shape.dt_max = p.dt_max;
    shape.xbc_stride = shape.dxbc_stride = columns;
    shape.dt_stride = shape.ddt_stride = p.heads;
    shape.y_stride = width;
  }

  std::vector<float> draw(double low, double high, bool softplus) {
    std::uniform_real_distribution<double> uniform(std::log(low), std::log(high));
    std::vector<float> values(p.heads);
    for (float& value : values) {
      const double log = uniform(generator);
      value = static_cast<float>(softplus ? std::log(std::expm1(std::exp(log))) : log);
    }
    return values;
  }

  void forward(cudaStream_t stream, void* workspace) const {
    SsdCudaForward args;
    args.xbc = xbc.get();
    args.dt_raw = dt_raw.get();
    args.a_log = a_log.get();
    args.d = d.get();
    args.dt_bias = dt_bias.get();
    args.seq_idx = seq_idx.get();
    args.initial_state = initial.get();
    args.y = y.get();
    args.final_state = final_state.get();
    args.workspace = workspace;
    kernels::ssd_cuda_forward(shape, args, stream);
  }

  void backward(cudaStream_t stream, void* workspace) const {
    SsdCudaBackward args;
    args.dy = dy.get();
    args.xbc = xbc.get();
    args.dt_raw = dt_raw.get();
    args.a_log = a_log.get();
    args.d = d.get();
    args.dt_bias = dt_bias.get();
    args.seq_idx = seq_idx.get();
    args.initial_state = initial.get();
    args.dfinal_state = dfinal.get();
    args.dxbc = dxbc.get();
    args.ddt_raw = ddt_raw.get();
    args.da_log = da_log.get();
    args.dd = dd.get();
    args.ddt_bias = ddt_bias.get();
    args.dinitial_state = dinitial.get();
    args.workspace = workspace;
    kernels::ssd_cuda_backward(shape, args, stream);
  }

  Problem p;
  std::mt19937 generator;
  int width, columns;
  std::size_t matrix;
  Buffer<Bf16> xbc, dt_raw, dy;
  Buffer<float> a_log, d, dt_bias, initial, dfinal;
  Buffer<int> seq_idx;
  Buffer<Bf16> y;
  Buffer<float> final_state;
  Buffer<Bf16> dxbc, ddt_raw;
  Buffer<float> da_log, dd, ddt_bias, dinitial;
  SsdCudaShape shape;
};

/// bf16 results of bf16 operands: a few independent roundings of at most 2^-9 each.
constexpr double kTolerance = 2 * 0x1p-8;
/// Sums over tokens of terms of both signs lose some digits of those.
constexpr double kSumTolerance = 6 * 0x1p-8;
/// dD: fp32 sums of exact products.
constexpr double kSkipTolerance = 64 * 0x1p-24;

void compare(const Problem& p) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const ScanRun run(p, seed);
  const auto zeros = [](std::size_t count) { return std::vector<double>(count, 0.0); };
  const std::size_t n = p.tokens;
  const std::size_t width = run.width, group_width = std::size_t(p.groups) * p.state;
  const Buffer<double> y(zeros(n * width)), final_state(zeros(run.matrix)),
      history(zeros(n * run.matrix)), dx(zeros(n * width)), db(zeros(n * group_width)),
      dc(zeros(n * group_width)), ddt(zeros(n * p.heads)), da(zeros(p.heads)), dd(zeros(p.heads)),
      dbias(zeros(p.heads)), dinitial(zeros(run.matrix));
  const SsdReference reference{
      p.tokens,          p.heads,           p.head_dim,        p.groups,          p.state,
      run.xbc.get(),     run.dt_raw.get(),  run.dy.get(),      run.a_log.get(),   run.d.get(),
      run.dt_bias.get(), run.initial.get(), run.dfinal.get(),  run.seq_idx.get(), p.dt_min,
      p.dt_max,          y.get(),           final_state.get(), history.get(),     dx.get(),
      db.get(),          dc.get(),          ddt.get(),         da.get(),          dd.get(),
      dbias.get(),       dinitial.get()};
  ssd_reference<<<(run.width * 32 + 127) / 128, 128>>>(reference);
  const Buffer<std::byte> forward(kernels::ssd_cuda_forward_workspace_bytes(run.shape));
  const Buffer<std::byte> backward(kernels::ssd_cuda_backward_workspace_bytes(run.shape));
  run.forward(nullptr, forward.get());
  run.backward(nullptr, backward.get());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);

  const auto dxbc = run.dxbc.host();
  const std::size_t columns = run.columns;
  EXPECT_LT(relative_error(run.y.host(), width, 0, y.host(), width), kTolerance) << "y";
  EXPECT_LT(relative_error(run.final_state.host(), p.state, 0, final_state.host(), p.state),
            kTolerance)
      << "final state";
  EXPECT_LT(relative_error(dxbc, columns, 0, dx.host(), width), kTolerance) << "dX";
  EXPECT_LT(relative_error(dxbc, columns, width, db.host(), group_width), kTolerance) << "dB";
  EXPECT_LT(relative_error(dxbc, columns, width + group_width, dc.host(), group_width), kTolerance)
      << "dC";
  EXPECT_LT(relative_error(run.ddt_raw.host(), p.heads, 0, ddt.host(), p.heads), kTolerance)
      << "ddt_raw";
  EXPECT_LT(relative_error(run.dinitial.host(), p.state, 0, dinitial.host(), p.state), kTolerance)
      << "dinitial";
  EXPECT_LT(relative_error(run.da_log.host(), p.heads, 0, da.host(), p.heads), kSumTolerance)
      << "dA_log";
  EXPECT_LT(relative_error(run.ddt_bias.host(), p.heads, 0, dbias.host(), p.heads), kSumTolerance)
      << "ddt_bias";
  EXPECT_LT(relative_error(run.dd.host(), p.heads, 0, dd.host(), p.heads), kSkipTolerance) << "dD";
}

TEST(ssd_gpu, less_than_a_chunk) {
  STOWAGE_NEED_GPU();
  // many heads, so that no gradient that is one number a head is small by chance
  compare({1, 16, 64, 2, 128, one_document(1), 1e-3, 0.1, 1, 16});
  compare({63, 16, 64, 2, 128, one_document(63), 1e-3, 0.1, 1, 16});
}

TEST(ssd_gpu, groups_and_ragged_heads) {
  STOWAGE_NEED_GPU();
  compare({777, 10, 64, 2, 128, one_document(777), 1e-3, 0.1, 1, 16});
}

TEST(ssd_gpu, documents_at_every_place_of_a_chunk) {
  STOWAGE_NEED_GPU();
  compare({2600, 4, 64, 2, 128, growing_documents(2600), 1e-3, 0.1, 1, 16, 3});
}

TEST(ssd_gpu, documents_of_one_token) {
  STOWAGE_NEED_GPU();
  std::vector<int> seq_idx(200);
  for (int t = 0; t < 200; ++t) seq_idx[t] = t;
  compare({200, 4, 64, 1, 64, seq_idx, 1e-2, 0.5, 1, 16});
}

TEST(ssd_gpu, head_dim_128_and_state_64) {
  STOWAGE_NEED_GPU();
  compare({500, 4, 128, 2, 64, growing_documents(500), 1e-3, 0.1, 1, 16});
}

TEST(ssd_gpu, segments_carry_long_memory) {
  STOWAGE_NEED_GPU();
  compare({4096, 4, 64, 1, 128, one_document(4096), 1e-4, 1e-3, 0.01, 0.1, 5});
}

TEST(ssd_gpu, fast_decay) {
  STOWAGE_NEED_GPU();
  compare({1500, 8, 64, 2, 128, growing_documents(1500), 0.5, 2, 8, 16, 2});
}

TEST(ssd_gpu, clamped_steps) {
  STOWAGE_NEED_GPU();
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
  STOWAGE_NEED_GPU();
  std::vector<int> seq_idx = one_document(1100);
  for (int t = 300; t < 1100; ++t) seq_idx[t] = 1;  // the second document spans the cut
  const ScanRun run({1100, 8, 64, 2, 128, seq_idx, 1e-3, 0.02, 0.1, 1}, std::random_device{}());
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

TEST(ssd_gpu, total_decay_is_what_the_entering_state_is_worth) {
  STOWAGE_NEED_GPU();
  const ScanRun run({900, 8, 64, 2, 128, one_document(900), 1e-4, 1e-3, 0.1, 2},
                    std::random_device{}());
  const PieceResult with(run, {0, 900, run.initial.get(), nullptr});
  const PieceResult without(run, {0, 900, nullptr, nullptr});
  const auto decay = with.total_decay.host();
  const auto initial = run.initial.host(), rest = without.final_state.host();
  std::vector<double> expected(run.matrix);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] = rest[i] + static_cast<double>(decay[i / (64 * 128)]) * initial[i];
  }
  EXPECT_LT(relative_error(with.final_state.host(), 128, 0, expected, 128), 1e-5);
}

TEST(ssd_gpu, same_bits_again_and_in_a_graph) {
  STOWAGE_NEED_GPU();
  const ScanRun run({3000, 16, 64, 2, 128, growing_documents(3000), 1e-3, 0.1, 1, 16}, 5);
  const Buffer<std::byte> forward(kernels::ssd_cuda_forward_workspace_bytes(run.shape));
  const Buffer<std::byte> backward(kernels::ssd_cuda_backward_workspace_bytes(run.shape));
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  run.forward(stream, forward.get());
  run.backward(stream, backward.get());
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  const auto y = run.y.host();
  const auto dxbc = run.dxbc.host();
  const auto ddt = run.ddt_raw.host();
  const auto da = run.da_log.host();

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  run.forward(stream, forward.get());
  run.backward(stream, backward.get());
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (int replay = 0; replay < 100; ++replay) {
    ASSERT_EQ(cudaMemsetAsync(run.y.get(), 0xFF, y.size() * sizeof(Bf16), stream), cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(run.dxbc.get(), 0xFF, dxbc.size() * sizeof(Bf16), stream),
              cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    ASSERT_EQ(std::memcmp(y.data(), run.y.host().data(), y.size() * sizeof(Bf16)), 0);
    ASSERT_EQ(std::memcmp(dxbc.data(), run.dxbc.host().data(), dxbc.size() * sizeof(Bf16)), 0);
    ASSERT_EQ(std::memcmp(ddt.data(), run.ddt_raw.host().data(), ddt.size() * sizeof(Bf16)), 0);
    ASSERT_EQ(std::memcmp(da.data(), run.da_log.host().data(), da.size() * sizeof(float)), 0);
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace stowage::test
