// The chunked form that runs on a GPU, by a team of one thread in fp64, against the recurrence.
#include <gtest/gtest.h>

#include <cmath>

#include "ctest/kernels/gated_delta_case.hpp"
#include "kernels/gated_delta/gated_delta_channel_gradients.hpp"

namespace stowage::kernels::test {
namespace {

/// As BlockTeam of gated_delta_team.cuh.
struct OneThread {
  void sync() const {}
  template <class Body>
  void each(int count, const Body& body) const {
    for (int i = 0; i < count; ++i) body(i);
  }
  template <class Of, class Done>
  void row_sums(int rows, int columns, const Of& of, const Done& done) const {
    for (int i = 0; i < rows; ++i) {
      double sum = 0;
      for (int j = 0; j < columns; ++j) sum += of(i, j);
      done(i, sum);
    }
  }
  void load(const double* from, std::int64_t stride, int rows, int columns, int all_rows,
            int all_columns, double* to, const double* factors) const {
    for (int i = 0; i < all_rows; ++i)
      for (int j = 0; j < all_columns; ++j)
        to[i * gated_delta::pitch(all_columns) + j] =
            i < rows && j < columns ? from[i * stride + j] * (factors != nullptr ? factors[i] : 1)
                                    : 0;
  }
  template <bool kTransposeA, bool kTransposeB>
  void product(int m, int n, int k, const double* a, int lda, const double* b, int ldb, double* c,
               int ldc, bool add) const {
    EXPECT_EQ(m % 16 + n % 16 + k % 16, 0);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        double sum = add ? c[i * ldc + j] : 0;
        for (int l = 0; l < k; ++l)
          sum += (kTransposeA ? a[l * lda + i] : a[i * lda + l]) *
                 (kTransposeB ? b[j * ldb + l] : b[l * ldb + j]);
        c[i * ldc + j] = sum;
      }
  }
};

using Chunks = gated_delta::Arrays<double, double>;

/// The operands of a case, and rooms that are NaN at first.
struct Problem {
  Problem(const DeltaCase& c, const DeltaInputs& in, bool whole) {
    const GatedDeltaShape& shape = c.shape;
    p.tokens = static_cast<int>(c.packed.tokens);
    p.key_heads = static_cast<int>(shape.key_heads);
    p.value_heads = static_cast<int>(shape.value_heads);
    p.key_dim = static_cast<int>(shape.key_dim);
    p.value_dim = static_cast<int>(shape.value_dim);
    p.channel_decay = shape.channel_decay;
    p.qkv = in.qkv.data();
    p.qkv_stride = shape.channels();
    p.ba = in.ba.data();
    p.ba_stride = shape.gates();
    p.a = in.a.data();
    p.a_log = in.a_log.data();
    p.dt_bias = in.dt_bias.data();
    p.seq_idx = c.packed.document.data();
    if (!in.initial.empty()) p.initial_state = in.initial.data();
    if (!in.dfinal.empty()) p.dfinal_state = in.dfinal.data();
    memory.assign(p.place(nullptr, whole) / sizeof(double), NAN);
    p.place(memory.data(), whole);
  }
  double* room(std::int64_t elements) {
    shared.assign(static_cast<std::size_t>(elements), NAN);
    return shared.data();
  }
  void prepare() {
    for (int chunk = 0; chunk < p.chunks(); ++chunk)
      for (int head = 0; head < p.value_heads; ++head)
        gated_delta::prepare(OneThread{}, p, chunk, head,
                             room(gated_delta::prepare_room(p.key_dim, p.channel_decay)),
                             kGatedDeltaEpsilon);
  }
  void scan(int first, int end) {
    for (int head = 0; head < p.value_heads; ++head)
      for (int slice = first; slice < end; ++slice)
        gated_delta::scan(OneThread{}, p, head, slice,
                          room(gated_delta::scan_room(p.key_dim, p.channel_decay)));
  }
  void adjoint() {
    for (int head = 0; head < p.value_heads; ++head)
      for (int slice = 0; slice < value_slices(); ++slice)
        gated_delta::adjoint(OneThread{}, p, head, slice,
                             room(gated_delta::scan_room(p.key_dim, p.channel_decay)));
  }
  void gradients() {
    for (int chunk = 0; chunk < p.chunks(); ++chunk)
      for (int head = 0; head < p.key_heads; ++head)
        if (p.channel_decay)
          gated_delta::channel_gradients(OneThread{}, p, chunk, head,
                                         room(gated_delta::channel_gradients_room(p.key_dim)));
        else
          gated_delta::gradients(OneThread{}, p, chunk, head,
                                 room(gated_delta::gradients_room(p.key_dim)));
    for (int i = 0; i < p.parts() * p.value_heads; ++i) gated_delta::finish(p, i);
  }
  int value_slices() const { return gated_delta::slices(p.value_dim); }

  Chunks p;
  Values memory, shared;
};

// {Hk, Hv, N, P}: chunks met and missed, borders inside and at their ends, a chunk of many
// documents, heads of one tile and of more; a decay for each column of a head.
std::vector<DeltaCase> cases() {
  return {{{1, 1, 1, 1}, Packed({1})},
          {{1, 2, 3, 2}, Packed({5, 2})},
          {{1, 1, 16, 16}, Packed({64, 64})},
          {{2, 4, 24, 20}, Packed({100, 29, 64, 120, 1}, 11)},
          {{2, 2, 7, 33}, Packed({1, 1, 60, 3, 5, 130})},
          {{1, 3, 32, 5}, Packed({200})},
          {{1, 1, 1, 1, true}, Packed({1})},
          {{2, 4, 24, 20, true}, Packed({100, 29, 64, 120, 1}, 11)},
          {{2, 2, 7, 33, true}, Packed({1, 1, 60, 3, 5, 130})}};
}

double error(const Values& actual, const Values& expected) {
  return std::min(relative_error(actual, expected), rms_difference(actual, expected));
}

constexpr double kBound = 1e-12;

TEST(gated_delta_chunks, forward_is_the_recurrence) {
  Random random;
  for (const DeltaCase& c : cases())
    for (const bool ends : {false, true}) {
      DeltaInputs in(random, c, Dtype::fp64);
      if (ends) in.with_ends(random, c);
      const DeltaResults expected = delta_forward(c, Dtype::fp64, in);
      Problem problem(c, in, false);
      Values y(expected.y.size(), NAN), final_state(expected.final_state.size(), NAN);
      problem.p.y = y.data();
      problem.p.final_state = final_state.data();
      problem.prepare();
      problem.scan(0, problem.value_slices());
      EXPECT_LT(error(y, expected.y), kBound) << c.packed.tokens << " tokens";
      EXPECT_LT(error(final_state, expected.final_state), kBound) << c.packed.tokens << " tokens";
    }
}

TEST(gated_delta_chunks, gradients_are_those_of_the_recurrence) {
  Random random;
  for (const DeltaCase& c : cases())
    for (const bool ends : {false, true}) {
      DeltaInputs in(random, c, Dtype::fp64);
      if (ends) in.with_ends(random, c);
      const DeltaGradients expected = delta_backward(c, Dtype::fp64, in);
      DeltaGradients got = expected;
      for (Values* values :
           {&got.dqkv, &got.dba, &got.da, &got.da_log, &got.ddt_bias, &got.dinitial})
        values->assign(values->size(), NAN);
      Problem problem(c, in, true);
      problem.p.dy = in.dy.data();
      problem.p.dqkv = got.dqkv.data();
      problem.p.dqkv_stride = c.shape.channels();
      problem.p.dba = got.dba.data();
      problem.p.dba_stride = c.shape.gates();
      problem.p.da = got.da.data();
      problem.p.da_log = got.da_log.data();
      problem.p.ddt_bias = got.ddt_bias.data();
      problem.p.dinitial_state = got.dinitial.data();
      problem.prepare();
      problem.scan(0, problem.value_slices());
      problem.adjoint();
      problem.gradients();
      EXPECT_LT(error(got.dqkv, expected.dqkv), kBound) << c.packed.tokens << " tokens";
      EXPECT_LT(error(got.dba, expected.dba), kBound) << c.packed.tokens << " tokens";
      if (c.shape.channel_decay) {
        EXPECT_LT(error(got.da, expected.da), kBound) << c.packed.tokens << " tokens";
      }
      EXPECT_LT(error(got.da_log, expected.da_log), kBound) << c.packed.tokens << " tokens";
      EXPECT_LT(error(got.ddt_bias, expected.ddt_bias), kBound) << c.packed.tokens << " tokens";
      EXPECT_LT(error(got.dinitial, expected.dinitial), kBound) << c.packed.tokens << " tokens";
    }
}

TEST(gated_delta_chunks, segments_leave_what_the_recurrence_does) {
  Random random;
  for (const DeltaCase& c : cases())
    for (const bool adjoint : {false, true}) {
      const DeltaInputs in(random, c, Dtype::fp64);
      const Values expected = adjoint ? delta_segment<true>(c, in) : delta_segment<false>(c, in);
      Problem problem(c, in, false);
      Values to(expected.size(), NAN);
      problem.p.transition = to.data() + c.shape.values() * c.shape.key_dim;
      (adjoint ? problem.p.dinitial_state : problem.p.final_state) = to.data();
      if (adjoint) problem.p.dy = in.dy.data();
      const int matrices = gated_delta::slices(problem.p.key_dim);
      problem.prepare();
      problem.scan(adjoint ? problem.value_slices() : 0, problem.value_slices() + matrices);
      if (adjoint) problem.adjoint();
      EXPECT_LT(error(to, expected), kBound) << c.packed.tokens << " tokens";
    }
}

}  // namespace
}  // namespace stowage::kernels::test
