// Host references of one more token of each sequence: the recurrences as the papers write them.
#include <algorithm>
#include <cmath>

#include "execution/host_loops.hpp"
#include "kernels/decode/conv1d_step.hpp"
#include "kernels/decode/gated_delta_step.hpp"
#include "kernels/decode/ssd_step.hpp"
#include "kernels/reduce.hpp"
#include "kernels/silu.hpp"

namespace stowage::kernels {

using execution::Accumulation;

template <class S>
void Conv1dStep::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  execution::host_for_each(sequences, [&](std::int64_t b) {
    S* rows = o.rows + b * (width - 1) * channels;
    if (o.positions[b] == 0) std::fill_n(rows, (width - 1) * channels, static_cast<S>(0.0F));
    for (std::int64_t c = 0; c < channels; ++c) {
      const S* w = o.w + c * width;
      A sum = o.b != nullptr ? static_cast<A>(o.b[c]) : A{0};
      for (std::int64_t k = 0; k + 1 < width; ++k)
        sum += static_cast<A>(w[k]) * static_cast<A>(rows[k * channels + c]);
      sum += static_cast<A>(w[width - 1]) * static_cast<A>(o.x(b, c));
      o.y[b * channels + c] = static_cast<S>(silu(sum));
    }
    std::copy(rows + channels, rows + (width - 1) * channels, rows);
    std::copy_n(o.x.row(b), channels, rows + (width - 2) * channels);
  });
}

template <class S>
void SsdStep::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  execution::host_for_each(sequences * shape.heads, [&](std::int64_t index) {
    const std::int64_t b = index / shape.heads, head = index % shape.heads;
    const std::int64_t group = head / (shape.heads / shape.groups);
    const A raw = static_cast<A>(o.dt(b, head)) + static_cast<A>(o.dt_bias[head]);
    const A softplus = std::max(raw, A{0}) + std::log1p(std::exp(-std::abs(raw)));
    const A dt =
        std::min(std::max(softplus, static_cast<A>(shape.dt_min)), static_cast<A>(shape.dt_max));
    const A decay = std::exp(-dt * std::exp(static_cast<A>(o.a_log[head])));
    const S* of_b = o.xbc.row(b) + shape.inner() + group * shape.state;
    const S* of_c = of_b + shape.shared();
    for (std::int64_t p = 0; p < shape.head_dim; ++p) {
      A* h = o.state + (index * shape.head_dim + p) * shape.state;
      if (o.positions[b] == 0) std::fill_n(h, shape.state, A{0});
      const A x = static_cast<A>(o.xbc(b, head * shape.head_dim + p));
      for (std::int64_t n = 0; n < shape.state; ++n)
        h[n] = decay * h[n] + dt * x * static_cast<A>(of_b[n]);
      const A read = ordered_sum<A>(shape.state,
                                    [=](std::int64_t n) { return h[n] * static_cast<A>(of_c[n]); });
      o.y[index * shape.head_dim + p] = static_cast<S>(read + static_cast<A>(o.d[head]) * x);
    }
  });
}

/// A scan of one token, which begins with the state before it.
template <class S>
void GatedDeltaStep::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const GatedDeltaForward one{
      .shape = shape, .tokens = 1, .storage = storage, .initial_state = true, .final_state = true};
  const std::int64_t size = shape.values() * shape.key_dim;
  const std::int32_t document = 0;
  for (std::int64_t b = 0; b < sequences; ++b) {
    A* state = o.state + b * size;
    if (o.positions[b] == 0) std::fill_n(state, size, A{0});
    one.reference<S>({.inputs = {.qkv = {o.qkv.row(b), 1, o.qkv.columns, o.qkv.stride},
                                 .ba = {o.ba.row(b), 1, o.ba.columns, o.ba.stride},
                                 .a = o.a == nullptr ? nullptr : o.a + b * shape.decays(),
                                 .a_log = o.a_log,
                                 .dt_bias = o.dt_bias,
                                 .seq_idx = &document,
                                 .initial_state = state},
                      .y = o.y + b * shape.values(),
                      .workspace = {},
                      .final_state = state});
  }
}

STOWAGE_REFERENCES(Conv1dStep)
STOWAGE_REFERENCES(SsdStep)
STOWAGE_REFERENCES(GatedDeltaStep)

}  // namespace stowage::kernels
