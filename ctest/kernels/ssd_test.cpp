#include "kernels/ssd/ssd.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "ctest/kernels/scan_case.hpp"
#include "kernels/ssd/ssd_layout.hpp"

namespace stowage::kernels::test {
namespace {

using Case = ScanCase;
using Inputs = ScanInputs;

// {H, P, G, N, Q}: chunks of one token, longer than the input, and with boundaries inside, at both
// of their ends and several at once.
std::vector<Case> cases() {
  return {{{1, 1, 1, 1, 4}, Packed({1})},
          {{2, 3, 1, 2, 1}, Packed({5, 2})},
          {{4, 3, 2, 5, 4}, Packed({4, 1, 0, 6, 2}, 3)},
          {{2, 2, 2, 3, 64}, Packed({9, 4})},
          {{3, 4, 3, 2, 8}, Packed({8, 8, 1, 7, 15})},
          {{2, 5, 1, 3, 5}, Packed({23})}};
}

Case large_case() { return {{4, 32, 2, 24, 64}, Packed({100, 29, 64, 120, 1}, 11)}; }

struct Results {
  Values y, final_state, total_decay;
};

Results results(const Case& c, Dtype storage, const Inputs& in) {
  SsdForward op = c.op<SsdForward>(storage);
  op.initial_state = !in.initial.empty();
  op.final_state = true;
  Random unused;
  const Arrays<SsdForward> o = make_arrays(op, unused);
  set_inputs(o.inputs, c, in);
  run(op, o);
  return {o.y.values(), o.final_state.values(), o.total_decay.values()};
}

Values forward(const Case& c, Dtype storage, const Inputs& in) { return results(c, storage, in).y; }

Results recurrence_results(const Case& c, const Inputs& in) {
  const std::int64_t n = c.packed.tokens, heads = c.shape.heads, channels = c.shape.channels();
  const Values xbc = joined(c.shape, in.x, in.b, in.c);
  Results r{Values(in.x.size()), Values(at(c.shape.inner() * c.shape.state)), Values(at(heads))};
  c.op<SsdForward>(Dtype::fp64)
      .recurrence<double>(
          {.inputs = {.xbc = {xbc.data(), n, channels, channels},
                      .dt = {in.dt.data(), n, heads, heads},
                      .a_log = in.a_log.data(),
                      .d = in.d.data(),
                      .dt_bias = in.dt_bias.data(),
                      .seq_idx = c.packed.document.data(),
                      .initial_state = in.initial.empty() ? nullptr : in.initial.data()},
           .y = r.y.data(),
           .workspace = nullptr,
           .final_state = r.final_state.data(),
           .total_decay = r.total_decay.data()});
  return r;
}

Values recurrence(const Case& c, const Inputs& in) { return recurrence_results(c, in).y; }

struct Gradients {
  Values dx, ddt, db, dc, da_log, dd, ddt_bias, dinitial;
};

// Runs twice, storing and then adding: the second run must double the sums over tokens.
Gradients backward(const Case& c, Dtype storage, const Inputs& in) {
  SsdBackward op = c.op<SsdBackward>(storage);
  op.initial_state = !in.initial.empty();
  op.dfinal_state = !in.dfinal.empty();
  op.dinitial_state = true;
  Random unused;
  const Arrays<SsdBackward> o = make_arrays(op, unused);
  set_inputs(o.inputs, c, in);
  set(o.dy, in.dy);
  if (op.dfinal_state) set(o.dfinal_state, in.dfinal);
  const auto results = [&](bool accumulate) {
    op.accumulate = accumulate;
    run(op, o);
    const Values dxbc = stored(o.gradients.dxbc);
    const std::int64_t inner = c.shape.inner(), shared = c.shape.shared();
    return Gradients{
        columns(c.shape, dxbc, 0, inner),      stored(o.gradients.ddt),
        columns(c.shape, dxbc, inner, shared), columns(c.shape, dxbc, inner + shared, shared),
        o.gradients.da_log.values(),           o.gradients.dd.values(),
        o.gradients.ddt_bias.values(),         o.dinitial_state.values()};
  };
  const Gradients first = results(false), added = results(true);
  EXPECT_EQ(added.dx, first.dx);
  EXPECT_EQ(added.da_log, doubled(first.da_log));
  EXPECT_EQ(added.dd, doubled(first.dd));
  EXPECT_EQ(added.ddt_bias, doubled(first.ddt_bias));
  return first;
}

struct Pair {
  const char* name;
  Values Inputs::*input;
  Values Gradients::*gradient;
  bool summed = false;  // over all tokens, and not rounded to storage
};
constexpr Pair kInitial = {"initial state", &Inputs::initial, &Gradients::dinitial};
constexpr Pair kPairs[] = {{"x", &Inputs::x, &Gradients::dx},
                           {"dt", &Inputs::dt, &Gradients::ddt},
                           {"b", &Inputs::b, &Gradients::db},
                           {"c", &Inputs::c, &Gradients::dc},
                           {"a_log", &Inputs::a_log, &Gradients::da_log, true},
                           {"d", &Inputs::d, &Gradients::dd, true},
                           {"dt_bias", &Inputs::dt_bias, &Gradients::ddt_bias, true}};

void expect_finite_differences(const Case& c, const Inputs& in) {
  const Gradients gradients = backward(c, Dtype::fp64, in);
  std::vector<Pair> pairs(std::begin(kPairs), std::end(kPairs));
  if (!in.initial.empty()) pairs.push_back(kInitial);
  for (const Pair& pair : pairs) {
    const Values expected = numeric_gradient(in.*pair.input, [&](const Values& changed) {
      Inputs other = in;
      other.*pair.input = changed;
      const Results r = recurrence_results(c, other);
      return dot(r.y, in.dy) + (in.dfinal.empty() ? 0 : dot(r.final_state, in.dfinal));
    });
    // Of a single token a_log has no gradient: only rounding of the differences is left.
    if (c.packed.tokens == 1 && pair.input == &Inputs::a_log && in.initial.empty()) {
      EXPECT_EQ((gradients.*pair.gradient)[0], 0);
      continue;
    }
    EXPECT_LT(relative_error(gradients.*pair.gradient, expected), 1e-7)
        << pair.name << ", chunk " << c.shape.chunk << ", tokens " << c.packed.tokens;
  }
}

TEST(ssd, chunked_form_is_the_recurrence) {
  Random random;
  std::vector<Case> all = cases();
  all.push_back(large_case());
  for (const Case& c : all) {
    const Inputs in(random, c, Dtype::fp64);
    const double terms = static_cast<double>(c.packed.tokens * c.shape.state);
    EXPECT_LT(error_of(forward(c, Dtype::fp64, in), recurrence(c, in)),
              tolerance(Dtype::fp64, terms, 8));
  }
}

// Each document alone, with nothing before it, by the recurrence.
TEST(ssd, documents_are_apart) {
  Random random;
  const Case c = large_case();
  const Inputs in(random, c, Dtype::fp64);
  const Values packed = forward(c, Dtype::fp64, in);
  const std::int64_t inner = c.shape.inner();
  for (std::int64_t begin = 0, end = 0; begin < c.packed.tokens; begin = end) {
    while (end < c.packed.tokens && c.packed.same(begin, end)) ++end;
    const Values expected =
        recurrence({c.shape, Packed({end - begin})}, in.part(c, begin, end - begin));
    const Values part(packed.begin() + begin * inner, packed.begin() + end * inner);
    EXPECT_LT(relative_error(part, expected), 1e-12) << "document at " << begin;
  }
}

TEST(ssd, gradients_by_finite_differences) {
  Random random;
  for (const Case& c : cases()) expect_finite_differences(c, Inputs(random, c, Dtype::fp64));
}

TEST(ssd, states_at_the_ends_are_those_of_the_recurrence) {
  Random random;
  std::vector<Case> all = cases();
  all.push_back(large_case());
  for (const Case& c : all) {
    const Inputs in = Inputs(random, c, Dtype::fp64).with_ends(random, c);
    const Results got = results(c, Dtype::fp64, in), expected = recurrence_results(c, in);
    const double limit =
        tolerance(Dtype::fp64, static_cast<double>(c.packed.tokens * c.shape.state), 8);
    EXPECT_LT(error_of(got.y, expected.y), limit);
    EXPECT_LT(error_of(got.final_state, expected.final_state), limit);
    EXPECT_LT(error_of(got.total_decay, expected.total_decay), limit);
  }
}

TEST(ssd, gradients_of_the_ends_by_finite_differences) {
  Random random;
  for (const Case& c : cases())
    expect_finite_differences(c, Inputs(random, c, Dtype::fp64).with_ends(random, c));
}

// A sequence in three segments, cut inside documents: each scan is handed the state of the one
// before, each backward the gradient of the one after, and together they are the whole.
TEST(ssd, segments_hand_the_state_on) {
  Random random;
  const Case whole = large_case();
  const Inputs in = Inputs(random, whole, Dtype::fp64).with_ends(random, whole);
  const Results expected = results(whole, Dtype::fp64, in);
  const Gradients gradients = backward(whole, Dtype::fp64, in);
  const std::int64_t cuts[] = {0, 90, 170, whole.packed.tokens};
  std::vector<Case> cases;
  std::vector<Inputs> inputs;
  Results got;
  Values state = in.initial;
  for (int i = 0; i < 3; ++i) {
    const std::int64_t n = cuts[i + 1] - cuts[i];
    const Case c = part_of(whole, cuts[i], n);
    Inputs segment = in.part(whole, cuts[i], n);
    segment.initial = state;
    const Results r = results(c, Dtype::fp64, segment);
    state = r.final_state;
    got.y.insert(got.y.end(), r.y.begin(), r.y.end());
    cases.push_back(c);
    inputs.push_back(segment);
  }
  EXPECT_LT(relative_error(got.y, expected.y), 1e-12);
  EXPECT_LT(relative_error(state, expected.final_state), 1e-12);
  Values dstate = in.dfinal, dx, da_log(at(whole.shape.heads));
  for (int i = 2; i >= 0; --i) {
    inputs[at(i)].dfinal = dstate;
    const Gradients g = backward(cases[at(i)], Dtype::fp64, inputs[at(i)]);
    dstate = g.dinitial;
    dx.insert(dx.begin(), g.dx.begin(), g.dx.end());
    for (std::size_t h = 0; h < da_log.size(); ++h) da_log[h] += g.da_log[h];
  }
  EXPECT_LT(relative_error(dx, gradients.dx), 1e-12);
  EXPECT_LT(relative_error(da_log, gradients.da_log), 1e-12);
  EXPECT_LT(relative_error(dstate, gradients.dinitial), 1e-12);
}

// Steps far below, within and far above the clamp: only those within pass a gradient to dt.
TEST(ssd, clamped_steps_pass_no_gradient) {
  Random random;
  Case c{{2, 2, 1, 3, 4}, Packed({5, 6})};
  c.shape.dt_min = 0.1;
  c.shape.dt_max = 1;
  Inputs in(random, c, Dtype::fp64);
  const double steps[] = {-6, -0.5, 4};
  for (std::size_t i = 0; i < in.dt.size(); ++i) in.dt[i] = steps[i % 3];
  in.dt_bias = {0.125, -0.25};
  expect_finite_differences(c, in);
  const Gradients gradients = backward(c, Dtype::fp64, in);
  for (std::size_t i = 0; i < in.dt.size(); ++i)
    EXPECT_EQ(gradients.ddt[i] == 0, i % 3 != 1) << "step " << i;
}

TEST(ssd, storage_types) {
  Random random;
  std::vector<Case> all = cases();
  all.push_back(large_case());
  for (const Case& c : all)
    for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
      const Inputs in(random, c, storage);
      const double terms = static_cast<double>(c.packed.tokens * c.shape.state);
      EXPECT_LT(error_of(forward(c, storage, in), recurrence(c, in)), tolerance(storage, terms, 8));
      const Gradients expected = backward(c, Dtype::fp64, in), actual = backward(c, storage, in);
      for (const Pair& pair : kPairs) {
        const double all_terms = terms * static_cast<double>(c.shape.head_dim);
        EXPECT_LT(error_of(actual.*pair.gradient, expected.*pair.gradient),
                  tolerance(pair.summed ? Dtype::fp32 : storage, all_terms, 32))
            << pair.name << " in " << execution::name(storage) << ", tokens " << c.packed.tokens;
      }
    }
}

// A decay that underflows forgets, exactly as a boundary does; nothing becomes NaN.
TEST(ssd, strong_decay_is_finite) {
  Random random;
  const Case c{{2, 4, 1, 4, 8}, Packed({37})};
  Inputs in(random, c, Dtype::fp32);
  in.a_log = {6, 8};
  for (std::size_t i = 0; i < in.dt.size(); i += 5) in.dt[i] = 30;
  EXPECT_LT(relative_error(forward(c, Dtype::fp32, in), recurrence(c, in)),
            tolerance(Dtype::fp32, 37 * 4, 64));
  const Gradients gradients = backward(c, Dtype::fp32, in);
  for (const Pair& pair : kPairs)
    for (const double value : gradients.*pair.gradient) EXPECT_TRUE(std::isfinite(value));
}

TEST(ssd, two_runs_give_the_same_bits) {
  Random random;
  const Case c = large_case();
  const Inputs in(random, c, Dtype::fp32);
  EXPECT_EQ(forward(c, Dtype::fp32, in), forward(c, Dtype::fp32, in));
  const Gradients first = backward(c, Dtype::fp32, in), second = backward(c, Dtype::fp32, in);
  for (const Pair& pair : kPairs) EXPECT_EQ(first.*pair.gradient, second.*pair.gradient);
}

// Flops per token of the shape that design section 10 names, in units of 10^6.
TEST(ssd, cost_counts_whole_tiles) {
  const Case c{{64, 64, 8, 128, 64}, Packed({1})};
  EXPECT_NEAR(c.op<SsdForward>(Dtype::bf16).cost().flops / 1e6, 3.41, 0.005);
  EXPECT_NEAR(c.op<SsdBackward>(Dtype::bf16).cost().flops / 1e6, 8.13, 0.005);
}

TEST(ssd, kernels_are_told_the_shape) {
  const SsdCudaShape s = kernels::detail::cuda_shape(
      {.heads = 6, .head_dim = 5, .groups = 2, .state = 3, .dt_min = 0.25, .dt_max = 7}, 11);
  EXPECT_EQ(s.tokens, 11);
  EXPECT_EQ(s.heads, 6);
  EXPECT_EQ(s.head_dim, 5);
  EXPECT_EQ(s.groups, 2);
  EXPECT_EQ(s.state, 3);
  EXPECT_EQ(s.dt_min, 0.25F);
  EXPECT_EQ(s.dt_max, 7.0F);
  EXPECT_EQ(s.y_stride, 6 * 5);
  EXPECT_EQ(s.xbc_stride, 6 * 5 + 2 * 2 * 3);
  EXPECT_EQ(s.dxbc_stride, s.xbc_stride);
  EXPECT_EQ(s.dt_stride, 6);
  EXPECT_EQ(s.ddt_stride, 6);
}

}  // namespace
}  // namespace stowage::kernels::test
