#include <cmath>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/reduce.hpp"
#include "kernels/silu.hpp"
#include "kernels/ssd/ssd_chunks.hpp"

namespace stowage::kernels {

using detail::SsdSizes;
using detail::SsdWorkspace;
using execution::Accumulation;

namespace {

// The gradients of one chunk for the heads of one group.
//
// With h the state that enters, g the gradient of the state that leaves, L the decays between two
// tokens, e_i those from the entry and w_j those to the exit, the chunk is
//
//   y_i = sum_{j<=i} (C_i B_j) L_ij dt_j X_j + e_i h C_i + d X_i
//   h'  = (product of decays) h + sum_j w_j dt_j X_j B_j^T
//
// and the gradient of the logarithm of a token's decay, da_t, is the sum over all pairs (from, to)
// of a path through t of the path's share: from j < t or h, to i >= t or h'. Sums are taken by
// pairs, not as differences of row and column sums, which would cancel.
template <class S>
class BackwardChunk {
 public:
  using A = Accumulation<S>;

  using Operands = OperandsOf<SsdBackward, Pointers<S>>;

  BackwardChunk(const SsdSizes& sizes, const Operands& o, const SsdWorkspace<A>& workspace,
                std::int64_t chunk, std::int64_t group)
      : sizes_(sizes),
        o_(o),
        workspace_(workspace),
        chunk_(chunk),
        group_(group),
        count_(sizes.size(chunk)),
        b_(count_, sizes.state),
        c_(count_, sizes.state),
        db_(count_, sizes.state),
        dc_(count_, sizes.state),
        state_term_(count_, sizes.state),
        products_(count_, count_),
        dproducts_(count_, count_),
        mixing_(count_, count_),
        shares_(count_, count_),
        x_(count_, sizes.head_dim),
        dx_(count_, sizes.head_dim),
        dy_(count_, sizes.head_dim),
        exit_term_(count_, sizes.head_dim),
        rows_(count_, kRows) {
    b_.load(detail::chunk_block(sizes, sizes.b(o.inputs.xbc), chunk, group, sizes.state));
    c_.load(detail::chunk_block(sizes, sizes.c(o.inputs.xbc), chunk, group, sizes.state));
    multiply(Transpose::no, c_, Transpose::yes, b_, products_);
    db_.set_zero(count_, sizes.state);
    dc_.set_zero(count_, sizes.state);
    dproducts_.set_zero(count_, count_);
    rows_.set_zero(kRows, count_);
  }

  void run(std::int64_t head) {
    head_ = head;
    decay_ = workspace_.decays(head, chunk_);
    step_ = workspace_.steps(head, chunk_);
    x_.load(detail::chunk_block(sizes_, sizes_.x(o_.inputs.xbc), chunk_, head, sizes_.head_dim));
    dy_.load(detail::chunk_block(sizes_, sizes_.rows(o_.dy), chunk_, head, sizes_.head_dim));
    within_chunk();
    if (chunk_ + 1 < sizes_.chunks || o_.dfinal_state != nullptr) to_exit();
    skip();
    dx_.store(
        detail::chunk_block(sizes_, sizes_.x(o_.gradients.dxbc), chunk_, head, sizes_.head_dim));
    from_entry();
    store_step_gradient();
  }

  // After all heads: the gradients of B and C, of which the heads of a group share one.
  void finish() {
    multiply(Transpose::no, dproducts_, Transpose::no, b_, dc_, true);
    multiply(Transpose::yes, dproducts_, Transpose::no, c_, db_, true);
    db_.store(
        detail::chunk_block(sizes_, sizes_.b(o_.gradients.dxbc), chunk_, group_, sizes_.state));
    dc_.store(
        detail::chunk_block(sizes_, sizes_.c(o_.gradients.dxbc), chunk_, group_, sizes_.state));
  }

 private:
  // Vectors over the tokens of the chunk: da, the part of ddt that does not pass through da, and
  // decays to or from each token.
  enum Row { kDecay, kStep, kWeight, kRows };
  A* row(Row which) { return rows_.row(which); }

  // Pairs of two tokens. The share of (j, i) is dy_i X_j (C_i B_j) L_ij, times dt_j.
  void within_chunk() {
    multiply(Transpose::no, dy_, Transpose::yes, x_, shares_);
    A* between = row(kWeight);
    for (std::int64_t i = 0; i < count_; ++i) {
      detail::next_decay_row(decay_, i, between);
      A* mixing = mixing_.row(i);
      A* share = shares_.row(i);
      A* dproduct = dproducts_.row(i);
      const A* product = products_.row(i);
      for (std::int64_t j = 0; j <= i; ++j) {
        mixing[j] = product[j] * between[j] * step_[j];
        dproduct[j] += share[j] * between[j] * step_[j];
        share[j] *= product[j] * between[j];
      }
      std::fill(mixing + i + 1, mixing + count_, A{0});
    }
    multiply(Transpose::yes, mixing_, Transpose::no, dy_, dx_);
    // From the last token backwards, `column` holds the shares of tokens j with all i >= t.
    A* column = row(kStep);
    std::fill_n(column, count_, A{0});
    for (std::int64_t t = count_ - 1; t >= 0; --t) {
      const A* share = shares_.row(t);
      for (std::int64_t j = 0; j <= t; ++j) column[j] += share[j];
      row(kDecay)[t] = ordered_sum<A>(t, [&](std::int64_t j) { return column[j] * step_[j]; });
    }
  }

  // From the tokens to the state that leaves.
  void to_exit() {
    const Matrix<const A> adjoint = workspace_.adjoint(chunk_, head_);
    A* weight = row(kWeight);
    detail::decay_to_exit(decay_, count_, weight);
    multiply(Transpose::no, b_, Transpose::yes, adjoint, exit_term_);
    A before{0};
    for (std::int64_t j = 0; j < count_; ++j) {
      const A* x = x_.row(j);
      const A* term = exit_term_.row(j);
      const A share = weight[j] * ordered_sum<A>(sizes_.head_dim,
                                                 [=](std::int64_t p) { return x[p] * term[p]; });
      row(kStep)[j] += share;
      row(kDecay)[j] += before;
      before += share * step_[j];
      weight[j] *= step_[j];
      for (std::int64_t p = 0; p < sizes_.head_dim; ++p) dx_.row(j)[p] += weight[j] * term[p];
    }
    exit_term_.load(detail::as_matrix(x_));
    exit_term_.scale_rows(weight);
    multiply(Transpose::no, exit_term_, Transpose::no, adjoint, db_, true);
  }

  void skip() {
    const A d = static_cast<A>(o_.inputs.d[head_]);
    for (std::int64_t i = 0; i < dx_.size(); ++i) dx_.data()[i] += d * dy_.data()[i];
    workspace_.sums(chunk_, head_)[SsdWorkspace<A>::kSkipSum] =
        ordered_sum<A>(dy_.size(), [this](std::int64_t i) { return dy_.data()[i] * x_.data()[i]; });
  }

  // From the state that enters, to the tokens and to the state that leaves. Uses up dy.
  void from_entry() {
    if (decay_[0] == A{0} || (chunk_ == 0 && o_.inputs.initial_state == nullptr)) return;
    const Matrix<const A> state = workspace_.state(chunk_, head_);
    const Matrix<const A> adjoint = workspace_.adjoint(chunk_, head_);
    A* weight = row(kWeight);
    detail::decay_from_entry(decay_, count_, weight);
    dy_.scale_rows(weight);
    multiply(Transpose::no, dy_, Transpose::no, state, state_term_);
    A behind = weight[count_ - 1] * ordered_sum<A>(sizes_.state_elements(), [=](std::int64_t i) {
                 return state.data[i] * adjoint.data[i];
               });
    for (std::int64_t i = count_ - 1; i >= 0; --i) {
      const A* c = c_.row(i);
      const A* term = state_term_.row(i);
      behind += ordered_sum<A>(sizes_.state, [=](std::int64_t s) { return c[s] * term[s]; });
      row(kDecay)[i] += behind;
    }
    for (std::int64_t i = 0; i < dc_.size(); ++i) dc_.data()[i] += state_term_.data()[i];
  }

  // Through decay = exp(dt A) and dt = clamp(softplus(raw + bias)).
  void store_step_gradient() {
    const A rate = -std::exp(static_cast<A>(o_.inputs.a_log[head_]));
    const A bias = static_cast<A>(o_.inputs.dt_bias[head_]);
    A decay_sum{0}, bias_sum{0};
    for (std::int64_t i = 0; i < count_; ++i) {
      const std::int64_t t = sizes_.begin(chunk_) + i;
      const A raw = static_cast<A>(o_.inputs.dt(t, head_)) + bias;
      const A unclamped = detail::softplus(raw);
      const bool clamped =
          unclamped < static_cast<A>(sizes_.dt_min) || unclamped > static_cast<A>(sizes_.dt_max);
      const A dstep = row(kStep)[i] + rate * row(kDecay)[i];
      const A draw = clamped ? A{0} : dstep * sigmoid(raw);
      o_.gradients.ddt(t, head_) = static_cast<S>(draw);
      bias_sum += draw;
      decay_sum += row(kDecay)[i] * step_[i];
    }
    workspace_.sums(chunk_, head_)[SsdWorkspace<A>::kDecaySum] = decay_sum;
    workspace_.sums(chunk_, head_)[SsdWorkspace<A>::kBiasSum] = bias_sum;
  }

  const SsdSizes& sizes_;
  const Operands& o_;
  const SsdWorkspace<A>& workspace_;
  std::int64_t chunk_, group_, count_, head_ = 0;
  const A* decay_ = nullptr;
  const A* step_ = nullptr;
  Tile<A> b_, c_, db_, dc_, state_term_, products_, dproducts_, mixing_, shares_;
  Tile<A> x_, dx_, dy_, exit_term_, rows_;
};

// The sums over chunks, in order. da_log = A * (sum of dt da), since dA / da_log = A.
template <class S>
void sum_chunks(const SsdSizes& sizes, const OperandsOf<SsdBackward, Pointers<S>>& o,
                const SsdWorkspace<Accumulation<S>>& workspace, bool accumulate) {
  using A = Accumulation<S>;
  using Workspace = SsdWorkspace<A>;
  for (std::int64_t head = 0; head < sizes.heads; ++head) {
    A total[Workspace::kSums] = {};
    for (std::int64_t chunk = 0; chunk < sizes.chunks; ++chunk)
      for (int i = 0; i < Workspace::kSums; ++i) total[i] += workspace.sums(chunk, head)[i];
    const A rate = -std::exp(static_cast<A>(o.inputs.a_log[head]));
    const auto put = [=](A* to, A value) { to[head] = accumulate ? to[head] + value : value; };
    put(o.gradients.da_log, rate * total[Workspace::kDecaySum]);
    put(o.gradients.dd, total[Workspace::kSkipSum]);
    put(o.gradients.ddt_bias, total[Workspace::kBiasSum]);
  }
}

}  // namespace

template <class S>
void SsdBackward::reference(const Operands<Pointers<S>>& o) const {
  const SsdSizes sizes(shape, tokens);
  const SsdWorkspace<Accumulation<S>> room(sizes, o.workspace);
  detail::ssd_steps(sizes, o.inputs, room);
  detail::ssd_states(sizes, o.inputs, room);
  detail::ssd_adjoints<S>(sizes, o, room);
  execution::host_for_each(sizes.chunks * sizes.groups, [&](std::int64_t index) {
    const std::int64_t group = index % sizes.groups;
    BackwardChunk<S> chunk(sizes, o, room, index / sizes.groups, group);
    for (std::int64_t i = 0; i < sizes.heads_per_group(); ++i)
      chunk.run(group * sizes.heads_per_group() + i);
    chunk.finish();
  });
  sum_chunks<S>(sizes, o, room, accumulate);
}

STOWAGE_REFERENCES(SsdBackward)

}  // namespace stowage::kernels
