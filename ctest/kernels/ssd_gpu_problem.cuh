#pragma once

#include <algorithm>
#include <vector>

#include "ctest/kernels/gpu_support.cuh"
#include "ctest/kernels/ssd_reference.cuh"
#include "kernels/ssd/ssd_cuda.hpp"

/// A scan on the GPU with all its operands, and the fp64 recurrence on the same operands.
namespace stowage::test {

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
  explicit ScanRun(const Problem& problem, std::uint64_t seed)
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
  std::mt19937_64 generator;
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

/// The results of the recurrence for the operands of a run.
struct ScanReference {
  explicit ScanReference(const ScanRun& run)
      : y(zeros(std::size_t(run.p.tokens) * run.width)),
        final_state(zeros(run.matrix)),
        dx(zeros(std::size_t(run.p.tokens) * run.width)),
        db(zeros(std::size_t(run.p.tokens) * run.p.groups * run.p.state)),
        dc(zeros(std::size_t(run.p.tokens) * run.p.groups * run.p.state)),
        ddt(zeros(std::size_t(run.p.tokens) * run.p.heads)),
        da(zeros(run.p.heads)),
        dd(zeros(run.p.heads)),
        dbias(zeros(run.p.heads)),
        dinitial(zeros(run.matrix)) {
    const Problem& p = run.p;
    const Buffer<double> history(std::size_t(p.tokens) * run.matrix);
    const SsdReference reference{
        p.tokens,          p.heads,           p.head_dim,        p.groups,          p.state,
        run.xbc.get(),     run.dt_raw.get(),  run.dy.get(),      run.a_log.get(),   run.d.get(),
        run.dt_bias.get(), run.initial.get(), run.dfinal.get(),  run.seq_idx.get(), p.dt_min,
        p.dt_max,          y.get(),           final_state.get(), history.get(),     dx.get(),
        db.get(),          dc.get(),          ddt.get(),         da.get(),          dd.get(),
        dbias.get(),       dinitial.get()};
    ssd_reference<<<(run.width * 32 + 127) / 128, 128>>>(reference);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  static std::vector<double> zeros(std::size_t count) { return std::vector<double>(count, 0.0); }

  Buffer<double> y, final_state, dx, db, dc, ddt, da, dd, dbias, dinitial;
};

}  // namespace stowage::test
