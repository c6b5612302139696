#pragma once

#include <cuda_bf16.h>

/// The scan of kernels/ssd in fp64 as the plain recurrence and its adjoint, token by token: what
/// the GPU tests compare with. One warp a column of X; slow, and with atomics in fp64.
namespace stowage::test {

struct SsdReference {
  int tokens, heads, head_dim, groups, state;
  const __nv_bfloat16 *xbc, *dt_raw, *dy;  // packed rows
  const float *a_log, *d, *dt_bias, *initial_state, *dfinal_state;
  const int* seq_idx;
  float dt_min, dt_max;
  double *y, *final_state, *history;  // history: (tokens, heads * head_dim, state)
  double *dx, *db, *dc, *ddt_raw, *da_log, *dd, *ddt_bias, *dinitial_state;  // zeroed before
};

namespace detail {

__device__ inline double warp_sum(double value) {
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(~0U, value, mask);
  return value;
}

struct Token {
  double raw, softplus, dt, decay, x, dy;
  bool first;  // of its document
};

__device__ inline Token token_of(const SsdReference& r, int t, int column) {
  const int head = column / r.head_dim, width = r.heads * r.head_dim;
  const long row = static_cast<long>(t) * (width + 2 * r.groups * r.state);
  Token token;
  token.raw = static_cast<double>(__bfloat162float(r.dt_raw[t * r.heads + head])) + r.dt_bias[head];
  token.softplus = token.raw > 40 ? token.raw : log1p(exp(token.raw));
  token.dt =
      fmin(fmax(token.softplus, static_cast<double>(r.dt_min)), static_cast<double>(r.dt_max));
  token.decay = exp(-token.dt * exp(static_cast<double>(r.a_log[head])));
  token.x = __bfloat162float(r.xbc[row + column]);
  token.dy = __bfloat162float(r.dy[static_cast<long>(t) * width + column]);
  token.first = t > 0 && r.seq_idx[t] != r.seq_idx[t - 1];
  return token;
}

__device__ inline double element(const SsdReference& r, int t, int which, int column, int n) {
  const int width = r.heads * r.head_dim;
  const int group = column / r.head_dim / (r.heads / r.groups);
  const long row = static_cast<long>(t) * (width + 2 * r.groups * r.state);
  return __bfloat162float(r.xbc[row + width + (which * r.groups + group) * r.state + n]);
}

}  // namespace detail

static __global__ void ssd_reference(const SsdReference r) {
  using namespace detail;
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x % 32), width = r.heads * r.head_dim;
  if (column >= width) return;
  const int head = column / r.head_dim, group = head / (r.heads / r.groups);
  const double a = -exp(static_cast<double>(r.a_log[head]));
  double h[4], q[4];
  for (int k = 0; k < r.state / 32; ++k) {
    h[k] = r.initial_state[static_cast<long>(column) * r.state + lane + 32 * k];
    q[k] = r.dfinal_state[static_cast<long>(column) * r.state + lane + 32 * k];
  }
  for (int t = 0; t < r.tokens; ++t) {
    const Token token = token_of(r, t, column);
    double y = 0;
    for (int k = 0; k < r.state / 32; ++k) {
      const int n = lane + 32 * k;
      h[k] =
          (token.first ? 0 : token.decay * h[k]) + token.dt * element(r, t, 0, column, n) * token.x;
      y += element(r, t, 1, column, n) * h[k];
      r.history[(static_cast<long>(t) * width + column) * r.state + n] = h[k];
      atomicAdd(&r.dc[(static_cast<long>(t) * r.groups + group) * r.state + n], token.dy * h[k]);
    }
    y = warp_sum(y);
    if (lane == 0) r.y[static_cast<long>(t) * width + column] = y + r.d[head] * token.x;
  }
  for (int k = 0; k < r.state / 32; ++k) {
    r.final_state[static_cast<long>(column) * r.state + lane + 32 * k] = h[k];
  }
  double da_sum = 0, dd_sum = 0, bias_sum = 0;
  for (int t = r.tokens - 1; t >= 0; --t) {  // q: decayed adjoint of the state after token t
    const Token token = token_of(r, t, column);
    double bg = 0, gh = 0;
    for (int k = 0; k < r.state / 32; ++k) {
      const int n = lane + 32 * k;
      const double g = q[k] + element(r, t, 1, column, n) * token.dy;
      const double before =
          token.first ? 0
          : t == 0    ? r.initial_state[static_cast<long>(column) * r.state + n]
                      : r.history[(static_cast<long>(t - 1) * width + column) * r.state + n];
      bg += element(r, t, 0, column, n) * g;
      gh += g * before;
      atomicAdd(&r.db[(static_cast<long>(t) * r.groups + group) * r.state + n],
                token.dt * g * token.x);
      q[k] = token.first ? 0 : token.decay * g;
    }
    bg = warp_sum(bg);
    const double da = token.decay * warp_sum(gh);
    const bool inside = token.softplus >= r.dt_min && token.softplus <= r.dt_max;
    const double draw = inside ? (a * da + bg * token.x) / (1 + exp(-token.raw)) : 0;
    da_sum += token.dt * da;
    dd_sum += token.dy * token.x;
    bias_sum += draw;
    if (lane != 0) continue;
    r.dx[static_cast<long>(t) * width + column] = token.dt * bg + r.d[head] * token.dy;
    atomicAdd(&r.ddt_raw[static_cast<long>(t) * r.heads + head], draw);
  }
  for (int k = 0; k < r.state / 32; ++k) {
    r.dinitial_state[static_cast<long>(column) * r.state + lane + 32 * k] = q[k];
  }
  if (lane != 0) return;
  atomicAdd(&r.da_log[head], a * da_sum);
  atomicAdd(&r.dd[head], dd_sum);
  atomicAdd(&r.ddt_bias[head], bias_sum);
}

}  // namespace stowage::test
