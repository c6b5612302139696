#include <algorithm>

#include "execution/host_loops.hpp"
#include "kernels/conv1d/conv1d.hpp"
#include "kernels/partials.hpp"
#include "kernels/silu.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {

// Tokens and channels of one piece of work: its rows of fp32 sums fit in the first-level cache.
constexpr std::int64_t kTokens = kRowsPerPartial;
constexpr std::int64_t kChannels = 64;
constexpr std::int64_t kHalo = kConv1dHalo;

// What is convolved: x (n, C), and the rows before it, (3, C) or nullptr. Taps are counted as if
// there were four; `missing` of them, the first ones, a narrower convolution has not.
template <class S>
struct Input {
  Matrix<const S> x;
  const S* halo;
  const std::int32_t* seq_idx;
  std::int64_t missing;

  const S* row(std::int64_t t) const { return t < 0 ? halo + (t + kHalo) * x.columns : x.row(t); }

  // The first tap of token t that falls on a token of its own document.
  std::int64_t first_tap(std::int64_t t) const {
    std::int64_t tap = kHalo;
    while (tap > missing && same(t - kHalo + tap - 1, t)) --tap;
    return tap;
  }
  bool same(std::int64_t before, std::int64_t t) const {
    return before < 0 ? halo != nullptr && seq_idx[0] == seq_idx[t] : seq_idx[before] == seq_idx[t];
  }
};

// The filters of up to kChannels channels, by tap.
template <class A>
struct Filters {
  template <class S>
  Filters(const S* w, const S* b, std::int64_t first_channel, const Input<S>& input)
      : first(first_channel), count(std::min(kChannels, input.x.columns - first_channel)) {
    const std::int64_t width = kConv1dMaxWidth - input.missing;
    for (std::int64_t c = 0; c < count; ++c) {
      bias[c] = b ? static_cast<A>(b[first + c]) : A{0};
      for (std::int64_t tap = 0; tap < kConv1dMaxWidth; ++tap) {
        const std::int64_t own = tap - input.missing;
        taps[tap][c] = own < 0 ? A{0} : static_cast<A>(w[(first + c) * width + own]);
      }
    }
  }

  // sum = b + sum of w_k x_{t-3+k}: what SiLU is applied to.
  template <class S>
  void apply(const Input<S>& input, std::int64_t t, A* sum) const {
    std::copy_n(bias, count, sum);
    for (std::int64_t tap = input.first_tap(t); tap < kConv1dMaxWidth; ++tap) {
      const S* from = input.row(t - kHalo + tap) + first;
      for (std::int64_t c = 0; c < count; ++c) sum[c] += taps[tap][c] * static_cast<A>(from[c]);
    }
  }

  std::int64_t first, count;
  A taps[kConv1dMaxWidth][kChannels];
  A bias[kChannels];
};

// Gradients of one piece: tokens [begin, end) of the channels of `filters`.
template <class S>
class BackwardPiece {
 public:
  using A = Accumulation<S>;

  BackwardPiece(const Filters<A>& filters, const Input<S>& input, std::int64_t begin,
                std::int64_t end)
      : filters_(filters), input_(input), begin_(begin), end_(end) {}

  // The gradient of the sum before SiLU, for the piece and the tokens that look back into it.
  void load(const S* dy) {
    for (std::int64_t t = begin_; t < std::min(end_ + kHalo, input_.x.rows); ++t) {
      A* dsum = dsum_[t - begin_];
      filters_.apply(input_, t, dsum);
      const S* from = dy + t * input_.x.columns + filters_.first;
      for (std::int64_t c = 0; c < filters_.count; ++c)
        dsum[c] = static_cast<A>(from[c]) * silu_derivative(dsum[c], sigmoid(dsum[c]));
    }
  }

  // dx_s = sum of w_k dsum_{s+3-k} over the tokens of the same document.
  void store_input_gradient(Matrix<S> dx) const {
    for (std::int64_t s = begin_; s < end_; ++s) store_row(s, dx.row(s));
  }

  // The same for the three rows before the first token.
  void store_halo_gradient(S* dhalo) const {
    for (std::int64_t s = -kHalo; s < 0; ++s) store_row(s, dhalo + (s + kHalo) * input_.x.columns);
  }

  // Adds to partial sums (kConv1dMaxWidth + 1, C): a row for each tap, then the bias.
  void add_filter_gradient(A* partial) const {
    for (std::int64_t t = begin_; t < end_; ++t) {
      const A* dsum = dsum_[t - begin_];
      for (std::int64_t tap = input_.first_tap(t); tap < kConv1dMaxWidth; ++tap) {
        const S* x = input_.row(t - kHalo + tap) + filters_.first;
        A* to = partial + tap * input_.x.columns + filters_.first;
        for (std::int64_t c = 0; c < filters_.count; ++c) to[c] += dsum[c] * static_cast<A>(x[c]);
      }
      A* to = partial + kConv1dMaxWidth * input_.x.columns + filters_.first;
      for (std::int64_t c = 0; c < filters_.count; ++c) to[c] += dsum[c];
    }
  }

 private:
  void store_row(std::int64_t s, S* row) const {
    A sum[kChannels] = {};
    for (std::int64_t t = std::max(s, std::int64_t{0}); t <= s + kHalo; ++t) {
      if (t >= input_.x.rows || (s < t && !input_.same(s, t))) break;
      const A* w = filters_.taps[kHalo - (t - s)];
      const A* dsum = dsum_[t - begin_];
      for (std::int64_t c = 0; c < filters_.count; ++c) sum[c] += w[c] * dsum[c];
    }
    S* to = row + filters_.first;
    for (std::int64_t c = 0; c < filters_.count; ++c) to[c] = static_cast<S>(sum[c]);
  }

  const Filters<A>& filters_;
  const Input<S>& input_;
  std::int64_t begin_, end_;
  A dsum_[kTokens + kHalo][kChannels];
};

// Adds the partial sums of all blocks in order; a thread has whole channels.
template <class A>
void sum_filter_gradient(const A* partials, std::int64_t tokens, std::int64_t channels, A* dw,
                         A* db, std::int64_t width, bool accumulate) {
  const std::int64_t missing = kConv1dMaxWidth - width;
  execution::host_for(channels, kChannels, [=](std::int64_t begin, std::int64_t end) {
    if (!accumulate) {
      std::fill(dw + begin * width, dw + end * width, A{0});
      if (db) std::fill(db + begin, db + end, A{0});
    }
    for (std::int64_t block = 0; block < partial_count(tokens); ++block) {
      const A* partial = partials + block * (kConv1dMaxWidth + 1) * channels;
      for (std::int64_t c = begin; c < end; ++c) {
        for (std::int64_t tap = 0; tap < width; ++tap)
          dw[c * width + tap] += partial[(missing + tap) * channels + c];
        if (db) db[c] += partial[kConv1dMaxWidth * channels + c];
      }
    }
  });
}

}  // namespace

template <class S>
void Conv1dForward::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const Input<S> input{o.x, o.halo, o.seq_idx, kConv1dMaxWidth - width};
  execution::host_for(tokens, kTokens, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = 0; first < channels; first += kChannels) {
      const Filters<A> filters(o.w, o.b, first, input);
      for (std::int64_t t = begin; t < end; ++t) {
        A sum[kChannels];
        filters.apply(input, t, sum);
        S* to = o.y + t * channels + first;
        for (std::int64_t c = 0; c < filters.count; ++c)
          to[c] = static_cast<S>(sum[c] * sigmoid(sum[c]));
      }
    }
  });
}

template <class S>
void Conv1dBackward::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const Input<S> input{o.x, o.halo, o.seq_idx, kConv1dMaxWidth - width};
  const std::int64_t sums = (kConv1dMaxWidth + 1) * channels;
  execution::host_for(tokens, kTokens, [&](std::int64_t begin, std::int64_t end) {
    A* partial = o.workspace + begin / kTokens * sums;
    std::fill_n(partial, sums, A{0});
    for (std::int64_t first = 0; first < channels; first += kChannels) {
      const Filters<A> filters(o.w, o.b, first, input);
      BackwardPiece<S> piece(filters, input, begin, end);
      piece.load(o.dy);
      piece.store_input_gradient(o.dx);
      if (begin == 0 && halo) piece.store_halo_gradient(o.dhalo);
      piece.add_filter_gradient(partial);
    }
  });
  sum_filter_gradient(o.workspace, tokens, channels, o.dw, o.db, width, accumulate);
}

STOWAGE_REFERENCES(Conv1dForward)
STOWAGE_REFERENCES(Conv1dBackward)

}  // namespace stowage::kernels
