// Host reference of the gated delta rule: the recurrence as the paper writes it, token by token.
#include <algorithm>
#include <cmath>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/gated_delta/gated_delta.hpp"
#include "kernels/gated_delta/segment.hpp"
#include "kernels/reduce.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {

/// One head of q or of k of a token, normalised, and the factor that did it.
template <class A>
struct Normed {
  std::vector<A> x;
  A factor = 0;

  template <class S>
  void load(const S* from, std::int64_t width, A scale) {
    x.resize(static_cast<std::size_t>(width));
    const A squares = ordered_sum<A>(
        width, [=](std::int64_t n) { return static_cast<A>(from[n]) * static_cast<A>(from[n]); });
    factor = scale / std::sqrt(squares + static_cast<A>(kGatedDeltaEpsilon));
    for (std::int64_t n = 0; n < width; ++n) x[n] = static_cast<A>(from[n]) * factor;
  }
  /// The gradient before the norm, of one behind it.
  template <class S>
  void backward(const A* dx, S* to, A scale) const {
    const auto width = static_cast<std::int64_t>(x.size());
    const A along = ordered_sum<A>(width, [&](std::int64_t n) { return dx[n] * x[n]; });
    for (std::int64_t n = 0; n < width; ++n)
      to[n] = static_cast<S>(factor * (dx[n] - x[n] * along / (scale * scale)));
  }
};

/// Decays and write strength of a head of a token.
template <class A>
struct Gate {
  A beta = 0;
  std::vector<A> softplus, slope;  ///< of a + dt_bias, for each decay of the head
  std::vector<A> decay;            ///< (N), of each column of the state

  template <class S>
  void load(const GatedDeltaShape& shape, const GatedDeltaInputs<Pointers<S>>& inputs,
            std::int64_t t, std::int64_t head) {
    beta = 1 / (1 + std::exp(-static_cast<A>(inputs.ba(t, head))));
    const A rate = std::exp(static_cast<A>(inputs.a_log[head]));
    const std::int64_t decays = shape.head_decays();
    softplus.resize(static_cast<std::size_t>(decays));
    slope.resize(static_cast<std::size_t>(decays));
    decay.resize(static_cast<std::size_t>(shape.key_dim));
    for (std::int64_t c = 0; c < decays; ++c) {
      const std::int64_t at = head * decays + c;
      const S raw = shape.channel_decay ? inputs.a[t * shape.decays() + at]
                                        : inputs.ba(t, shape.value_heads + head);
      const A a = static_cast<A>(raw) + static_cast<A>(inputs.dt_bias[at]);
      softplus[c] = std::max(a, A{0}) + std::log1p(std::exp(-std::abs(a)));
      slope[c] = 1 / (1 + std::exp(-a));
      decay[c] = std::exp(-softplus[c] * rate);
    }
    if (!shape.channel_decay) std::ranges::fill(decay, A{decay[0]});
  }
};

template <class S>
bool begins(const GatedDeltaInputs<Pointers<S>>& inputs, std::int64_t t) {
  return t > 0 && inputs.seq_idx[t] != inputs.seq_idx[t - 1];
}

/// The state of one head, (rows, N), of which the rows behind the P of the rule read no values.
template <class S>
class Head {
 public:
  using A = Accumulation<S>;
  Head(const GatedDeltaShape& shape, const GatedDeltaInputs<Pointers<S>>& inputs, std::int64_t head,
       std::int64_t more_rows = 0)
      : shape_(shape),
        inputs_(inputs),
        head_(head),
        rows_(shape.value_dim + more_rows),
        state(static_cast<std::size_t>(rows_ * shape.key_dim)),
        u(static_cast<std::size_t>(rows_)) {
    if (inputs.initial_state != nullptr)
      std::copy_n(inputs.initial_state + head * size(), size(), state.data());
  }
  std::int64_t size() const { return shape_.value_dim * shape_.key_dim; }

  /// Norms and gates of token t.
  void read(std::int64_t t) {
    const std::int64_t width = shape_.key_dim, at = head_ / shape_.heads_per_key() * width;
    q.load(inputs_.qkv.row(t) + at, width, scale());
    k.load(inputs_.qkv.row(t) + shape_.keys() + at, width, A{1});
    gate.load(shape_, inputs_, t, head_);
  }
  /// S_t from S_{t-1}; u = beta (v - alpha S_{t-1} k).
  void step(std::int64_t t) {
    if (begins<S>(inputs_, t)) std::ranges::fill(state, A{0});
    const std::int64_t width = shape_.key_dim;
    for (std::int64_t p = 0; p < rows_; ++p) {
      A* row = state.data() + p * width;
      A kept{0};
      for (std::int64_t n = 0; n < width; ++n) {
        row[n] *= gate.decay[n];
        kept += row[n] * k.x[n];
      }
      u[p] = gate.beta * (value(t, p) - kept);
      for (std::int64_t n = 0; n < width; ++n) row[n] += u[p] * k.x[n];
    }
  }
  A value(std::int64_t t, std::int64_t p) const {
    if (p >= shape_.value_dim) return A{0};
    return static_cast<A>(inputs_.qkv(t, 2 * shape_.keys() + head_ * shape_.value_dim + p));
  }
  A scale() const { return 1 / std::sqrt(static_cast<A>(shape_.key_dim)); }

 private:
  const GatedDeltaShape& shape_;
  const GatedDeltaInputs<Pointers<S>>& inputs_;
  std::int64_t head_, rows_;

 public:
  Normed<A> q, k;
  Gate<A> gate;
  std::vector<A> state, u;
};

/// The gradient of one head's state, carried from the last token to the first.
template <class S>
struct Adjoint {
  using A = Accumulation<S>;
  std::int64_t rows, width;
  bool channel_decay;
  std::vector<A> dstate = std::vector<A>(static_cast<std::size_t>(rows * width));
  std::vector<A> dk = std::vector<A>(static_cast<std::size_t>(width)), dq = dk;
  std::vector<A> ddecay = std::vector<A>(static_cast<std::size_t>(channel_decay ? width : 1));
  A dbeta = 0;

  /// Of token t, with the head's state and u behind it, and the state `before` it. Writes dv.
  template <class WriteDv>
  void step(const Head<S>& head, std::int64_t t, const A* before, const S* dy, const WriteDv& dv) {
    std::ranges::fill(dq, A{0});
    std::ranges::fill(dk, A{0});
    std::ranges::fill(ddecay, A{0});
    dbeta = 0;
    for (std::int64_t p = 0; p < rows; ++p) {
      A* d = dstate.data() + p * width;
      const A* s = head.state.data() + p * width;
      const A* b = before + p * width;
      const A gradient = static_cast<A>(dy[p]), beta = head.gate.beta;
      const A* decay = head.gate.decay.data();
      A du{0};
      for (std::int64_t n = 0; n < width; ++n) {
        dq[n] += gradient * s[n];
        d[n] += gradient * head.q.x[n];
        du += d[n] * head.k.x[n];
      }
      dv(p, beta * du);
      A kept{0};  // of alpha S_{t-1} k
      for (std::int64_t n = 0; n < width; ++n) {
        kept += decay[n] * b[n] * head.k.x[n];
        dk[n] += d[n] * head.u[p] - beta * du * decay[n] * b[n];
        d[n] -= beta * du * head.k.x[n];
        ddecay[channel_decay ? n : 0] += d[n] * b[n];
        d[n] *= decay[n];
      }
      // u / beta = v - kept
      dbeta += du * (head.value(t, p) - kept);
    }
  }
};

}  // namespace

template <class S>
void GatedDeltaForward::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  execution::host_for_each(shape.value_heads, [&](std::int64_t h) {
    Head<S> head(shape, o.inputs, h);
    for (std::int64_t t = 0; t < tokens; ++t) {
      head.read(t);
      head.step(t);
      for (std::int64_t p = 0; p < shape.value_dim; ++p) {
        A sum{0};
        for (std::int64_t n = 0; n < shape.key_dim; ++n)
          sum += head.state[p * shape.key_dim + n] * head.q.x[n];
        o.y[(t * shape.value_heads + h) * shape.value_dim + p] = static_cast<S>(sum);
      }
    }
    if (o.final_state != nullptr) std::ranges::copy(head.state, o.final_state + h * head.size());
  });
}

template <class S>
void GatedDeltaBackward::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const std::int64_t width = shape.key_dim, size = shape.value_dim * width;
  constexpr std::int64_t kChunk = kGatedDeltaChunk;
  execution::host_for_each(shape.key_heads, [&](std::int64_t key_head) {
    // Of all value heads that read these q and k.
    std::vector<A> dq(static_cast<std::size_t>(tokens * width)), dk = dq;
    for (std::int64_t h = key_head * shape.heads_per_key();
         h < (key_head + 1) * shape.heads_per_key(); ++h) {
      std::vector<A> starts;  // of chunks, the states before them
      {
        Head<S> head(shape, o.inputs, h);
        for (std::int64_t t = 0; t < tokens; ++t) {
          if (t % kChunk == 0) starts.insert(starts.end(), head.state.begin(), head.state.end());
          head.read(t);
          head.step(t);
        }
      }
      Head<S> head(shape, o.inputs, h);
      Adjoint<S> adjoint{shape.value_dim, width, shape.channel_decay};
      if (o.dfinal_state != nullptr)
        std::copy_n(o.dfinal_state + h * size, size, adjoint.dstate.data());
      const std::int64_t decays = shape.head_decays();
      A da_log{0};
      std::vector<A> ddt_bias(static_cast<std::size_t>(decays));
      std::vector<A> states(static_cast<std::size_t>((kChunk + 1) * size));  // of a chunk's tokens
      std::vector<A> us(static_cast<std::size_t>(kChunk * shape.value_dim));
      const std::vector<A> none(static_cast<std::size_t>(size));
      for (std::int64_t first = (tokens - 1) / kChunk * kChunk; tokens > 0 && first >= 0;
           first -= kChunk) {
        const std::int64_t end = std::min(tokens, first + kChunk);
        std::copy_n(starts.data() + first / kChunk * size, size, head.state.data());
        for (std::int64_t t = first; t < end; ++t) {
          std::ranges::copy(head.state, states.data() + (t - first) * size);
          head.read(t);
          head.step(t);
          std::ranges::copy(head.u, us.data() + (t - first) * shape.value_dim);
        }
        std::ranges::copy(head.state, states.data() + (end - first) * size);
        for (std::int64_t t = end - 1; t >= first; --t) {
          head.read(t);
          std::copy_n(states.data() + (t - first + 1) * size, size, head.state.data());
          std::copy_n(us.data() + (t - first) * shape.value_dim, shape.value_dim, head.u.data());
          const bool begin = begins<S>(o.inputs, t);
          const A* before = begin ? none.data() : states.data() + (t - first) * size;
          adjoint.step(head, t, before, o.dy + (t * shape.value_heads + h) * shape.value_dim,
                       [&](std::int64_t p, A value) {
                         o.gradients.dqkv(t, 2 * shape.keys() + h * shape.value_dim + p) =
                             static_cast<S>(value);
                       });
          if (begin) std::ranges::fill(adjoint.dstate, A{0});
          for (std::int64_t n = 0; n < width; ++n) {
            dq[t * width + n] += adjoint.dq[n];
            dk[t * width + n] += adjoint.dk[n];
          }
          const Gate<A>& gate = head.gate;
          const A rate = std::exp(static_cast<A>(o.inputs.a_log[h]));
          o.gradients.dba(t, h) = static_cast<S>(adjoint.dbeta * gate.beta * (1 - gate.beta));
          for (std::int64_t c = 0; c < decays; ++c) {
            const A dlog = adjoint.ddecay[c] * gate.decay[c];  // of log alpha
            const A da = -dlog * rate * gate.slope[c];
            S& to = shape.channel_decay ? o.gradients.da[t * shape.decays() + h * decays + c]
                                        : o.gradients.dba(t, shape.value_heads + h);
            to = static_cast<S>(da);
            da_log -= dlog * rate * gate.softplus[c];
            ddt_bias[c] += da;
          }
        }
      }
      if (o.dinitial_state != nullptr)
        std::ranges::copy(adjoint.dstate, o.dinitial_state + h * size);
      o.gradients.da_log[h] = (accumulate ? o.gradients.da_log[h] : A{0}) + da_log;
      for (std::int64_t c = 0; c < decays; ++c) {
        A& to = o.gradients.ddt_bias[h * decays + c];
        to = (accumulate ? to : A{0}) + ddt_bias[c];
      }
    }
    Head<S> head(shape, o.inputs, key_head * shape.heads_per_key());
    for (std::int64_t t = 0; t < tokens; ++t) {
      head.read(t);
      S* row = o.gradients.dqkv.row(t) + key_head * width;
      head.q.backward(dq.data() + t * width, row, head.scale());
      head.k.backward(dk.data() + t * width, row + shape.keys(), A{1});
    }
  });
}

template <bool kAdjoint>
template <class S>
void GatedDeltaSegment<kAdjoint>::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const std::int64_t width = shape.key_dim, size = shape.value_dim * width;
  execution::host_for_each(shape.value_heads, [&](std::int64_t h) {
    // Below the state, what becomes of the rows of the identity.
    Head<S> head(shape, o.inputs, h, width);
    for (std::int64_t n = 0; n < width; ++n) head.state[size + n * width + n] = 1;
    for (std::int64_t t = 0; t < tokens; ++t) {
      head.read(t);
      head.step(t);
    }
    std::copy(head.state.begin() + size, head.state.end(),
              o.to + shape.values() * width + h * width * width);
    A* to = o.to + h * size;
    if constexpr (!kAdjoint) {
      std::copy_n(head.state.begin(), size, to);
    } else {
      Adjoint<S> adjoint{shape.value_dim, width, shape.channel_decay};
      const std::vector<A> none(static_cast<std::size_t>(size));
      std::ranges::fill(head.u, A{0});
      for (std::int64_t t = tokens - 1; t >= 0; --t) {
        head.read(t);
        adjoint.step(head, t, none.data(), o.dy + (t * shape.value_heads + h) * shape.value_dim,
                     [](std::int64_t, A) {});
        if (begins<S>(o.inputs, t)) std::ranges::fill(adjoint.dstate, A{0});
      }
      std::ranges::copy(adjoint.dstate, to);
    }
  });
}

STOWAGE_REFERENCES(GatedDeltaForward)
STOWAGE_REFERENCES(GatedDeltaBackward)
STOWAGE_REFERENCES(GatedDeltaSegment<false>)
STOWAGE_REFERENCES(GatedDeltaSegment<true>)

}  // namespace stowage::kernels
