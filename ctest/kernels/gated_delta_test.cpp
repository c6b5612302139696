#include "kernels/gated_delta/gated_delta.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "ctest/kernels/gated_delta_case.hpp"

namespace stowage::kernels::test {
namespace {

// {Hk, Hv, N, P}: one token, chunks of 64 that are met and missed, borders inside and at their
// ends, heads alone and shared, more and fewer columns than a tile; a decay for each column.
std::vector<DeltaCase> cases() {
  return {{{1, 1, 1, 1}, Packed({1})},
          {{1, 2, 3, 2}, Packed({5, 2})},
          {{2, 4, 5, 3}, Packed({4, 1, 0, 6, 2}, 3)},
          {{3, 3, 2, 4}, Packed({23})},
          {{1, 2, 3, 2, true}, Packed({5, 1, 2}, 1)}};
}
DeltaCase large_case(bool channel_decay = false) {
  return {{2, 4, 24, 20, channel_decay}, Packed({100, 29, 64, 120, 1}, 11)};
}

/// Equation 10 of arXiv 2412.06464 as it stands, with matrices: S = S A + beta v k^T. Decays of
/// channels: that of arXiv 2510.26692.
Values by_matrices(const DeltaCase& c, const DeltaInputs& in) {
  const GatedDeltaShape& shape = c.shape;
  const std::int64_t N = shape.key_dim, P = shape.value_dim, H = shape.value_heads;
  Values y;
  y.resize(at(c.packed.tokens * shape.values()));
  for (std::int64_t h = 0; h < H; ++h) {
    Values s(at(P * N));
    if (!in.initial.empty())
      s.assign(in.initial.begin() + h * P * N, in.initial.begin() + (h + 1) * P * N);
    for (std::int64_t t = 0; t < c.packed.tokens; ++t) {
      if (t > 0 && !c.packed.same(t - 1, t)) s.assign(s.size(), 0);
      const double* row = in.qkv.data() + t * shape.channels();
      const std::int64_t key = h / (H / shape.key_heads) * N;
      Values q(row + key, row + key + N), k(row + shape.keys() + key, row + shape.keys() + key + N);
      const double q_norm = std::sqrt(dot(q, q) + 1e-6) * std::sqrt(static_cast<double>(N));
      const double k_norm = std::sqrt(dot(k, k) + 1e-6);
      for (double& x : q) x /= q_norm;
      for (double& x : k) x /= k_norm;
      const double beta = 1 / (1 + std::exp(-in.ba[at(t * shape.gates() + h)]));
      Values alpha;
      for (std::int64_t n = 0; n < N; ++n) {
        const std::int64_t i = shape.channel_decay ? h * N + n : h;
        const double a =
            shape.channel_decay ? in.a[at(t * H * N + i)] : in.ba[at(t * 2 * H + H + h)];
        const double step = std::log1p(std::exp(a + in.dt_bias[at(i)]));
        alpha.push_back(std::exp(-std::exp(in.a_log[at(h)]) * step));
      }
      Values next(s.size());
      for (std::int64_t p = 0; p < P; ++p)
        for (std::int64_t n = 0; n < N; ++n) {
          double sum = beta * row[2 * shape.keys() + h * P + p] * k[at(n)];
          for (std::int64_t m = 0; m < N; ++m)
            sum += s[at(p * N + m)] * alpha[at(m)] *
                   ((m == n ? 1.0 : 0.0) - beta * k[at(m)] * k[at(n)]);
          next[at(p * N + n)] = sum;
        }
      s = next;
      for (std::int64_t p = 0; p < P; ++p)
        for (std::int64_t n = 0; n < N; ++n)
          y[at((t * H + h) * P + p)] += s[at(p * N + n)] * q[at(n)];
    }
  }
  return y;
}

struct Pair {
  const char* name;
  Values DeltaInputs::*input;
  Values DeltaGradients::*gradient;
  bool summed = false;  // over all tokens, and not rounded to storage
};
constexpr Pair kInitial = {"initial state", &DeltaInputs::initial, &DeltaGradients::dinitial};
constexpr Pair kPairs[] = {{"qkv", &DeltaInputs::qkv, &DeltaGradients::dqkv},
                           {"ba", &DeltaInputs::ba, &DeltaGradients::dba},
                           {"a", &DeltaInputs::a, &DeltaGradients::da},
                           {"a_log", &DeltaInputs::a_log, &DeltaGradients::da_log, true},
                           {"dt_bias", &DeltaInputs::dt_bias, &DeltaGradients::ddt_bias, true}};

void expect_finite_differences(const DeltaCase& c, const DeltaInputs& in) {
  const DeltaGradients gradients = delta_backward(c, Dtype::fp64, in);
  std::vector<Pair> pairs(std::begin(kPairs), std::end(kPairs));
  if (!in.initial.empty()) pairs.push_back(kInitial);
  for (const Pair& pair : pairs) {
    if ((in.*pair.input).empty()) continue;
    const Values expected = numeric_gradient(in.*pair.input, [&](const Values& changed) {
      DeltaInputs other = in;
      other.*pair.input = changed;
      const DeltaResults r = delta_forward(c, Dtype::fp64, other);
      return dot(r.y, in.dy) + (in.dfinal.empty() ? 0 : dot(r.final_state, in.dfinal));
    });
    // A single token decays nothing: only rounding of the differences is left.
    if (c.packed.tokens == 1 && in.initial.empty() && pair.summed) {
      EXPECT_EQ((gradients.*pair.gradient)[0], 0);
      continue;
    }
    EXPECT_LT(relative_error(gradients.*pair.gradient, expected), 1e-7)
        << pair.name << ", tokens " << c.packed.tokens;
  }
}

TEST(gated_delta, recurrence_is_that_of_the_paper) {
  Random random;
  for (const DeltaCase& c : cases())
    for (const bool ends : {false, true}) {
      DeltaInputs in(random, c, Dtype::fp64);
      if (ends) in.with_ends(random, c);
      EXPECT_LT(relative_error(delta_forward(c, Dtype::fp64, in).y, by_matrices(c, in)), 1e-12);
    }
}

TEST(gated_delta, documents_are_apart) {
  Random random;
  const DeltaCase c = large_case(true);
  const DeltaInputs in(random, c, Dtype::fp64);
  const Values packed = delta_forward(c, Dtype::fp64, in).y;
  const std::int64_t width = c.shape.values();
  for (std::int64_t begin = 0, end = 0; begin < c.packed.tokens; begin = end) {
    while (end < c.packed.tokens && c.packed.same(begin, end)) ++end;
    const Values alone =
        delta_forward({c.shape, Packed({end - begin})}, Dtype::fp64, in.part(c, begin, end - begin))
            .y;
    const Values part(packed.begin() + begin * width, packed.begin() + end * width);
    EXPECT_EQ(part, alone) << "document at " << begin;
  }
}

TEST(gated_delta, gradients_by_finite_differences) {
  Random random;
  for (const DeltaCase& c : cases()) {
    DeltaInputs in(random, c, Dtype::fp64);
    expect_finite_differences(c, in);
    expect_finite_differences(c, in.with_ends(random, c));
  }
}

// Three segments, cut inside documents: each is handed the state of the one before, each backward
// the gradient of the one after, and together they are the whole.
TEST(gated_delta, segments_hand_the_state_on) {
  Random random;
  for (const bool channel_decay : {false, true}) {
    const DeltaCase whole = large_case(channel_decay);
    const DeltaInputs in = DeltaInputs(random, whole, Dtype::fp64).with_ends(random, whole);
    const DeltaResults expected = delta_forward(whole, Dtype::fp64, in);
    const DeltaGradients gradients = delta_backward(whole, Dtype::fp64, in);
    const std::int64_t cuts[] = {0, 90, 170, whole.packed.tokens};
    std::vector<DeltaInputs> inputs;
    Values y, state = in.initial;
    for (int i = 0; i < 3; ++i) {
      inputs.push_back(in.part(whole, cuts[i], cuts[i + 1] - cuts[i]));
      inputs.back().initial = state;
      const DeltaResults r =
          delta_forward(whole.part(cuts[i], cuts[i + 1] - cuts[i]), Dtype::fp64, inputs.back());
      state = r.final_state;
      y.insert(y.end(), r.y.begin(), r.y.end());
    }
    EXPECT_LT(relative_error(y, expected.y), 1e-12);
    EXPECT_LT(relative_error(state, expected.final_state), 1e-12);
    Values dstate = in.dfinal, dqkv, da, da_log(at(whole.shape.value_heads));
    for (int i = 2; i >= 0; --i) {
      inputs[at(i)].dfinal = dstate;
      const DeltaGradients g =
          delta_backward(whole.part(cuts[i], cuts[i + 1] - cuts[i]), Dtype::fp64, inputs[at(i)]);
      dstate = g.dinitial;
      dqkv.insert(dqkv.begin(), g.dqkv.begin(), g.dqkv.end());
      da.insert(da.begin(), g.da.begin(), g.da.end());
      for (std::size_t h = 0; h < da_log.size(); ++h) da_log[h] += g.da_log[h];
    }
    EXPECT_LT(relative_error(dqkv, gradients.dqkv), 1e-12);
    if (channel_decay) {
      EXPECT_LT(relative_error(da, gradients.da), 1e-12);
    }
    EXPECT_LT(relative_error(da_log, gradients.da_log), 1e-12);
    EXPECT_LT(relative_error(dstate, gradients.dinitial), 1e-12);
  }
}

/// What enters segment `segment`, from what all leave.
template <bool kAdjoint>
Values entering(const DeltaCase& c, const DeltaInputs& in, std::int64_t segments,
                std::int64_t segment) {
  const std::int64_t n = c.packed.tokens / segments;
  Values all;
  for (std::int64_t i = 0; i < segments; ++i) {
    const Values left = delta_segment<kAdjoint>(c.part(i * n, n), in.part(c, i * n, n));
    all.insert(all.end(), left.begin(), left.end());
  }
  const GatedDeltaEnter<kAdjoint> op{c.shape, c.packed.tokens, segments, segment, Dtype::fp64};
  Random unused;
  const auto o = make_arrays(op, unused);
  set(o.all, all);
  set(o.seq_idx, {c.packed.document.begin(), c.packed.document.end()});
  run(op, o);
  return o.state.values();
}

TEST(gated_delta, what_segments_leave_makes_what_enters_each) {
  Random random;
  // A document over all segments, one that ends within the second, one that begins with the third.
  for (const Packed& packed : {Packed({40}), Packed({13, 27}), Packed({20, 3, 17})}) {
    const DeltaCase c{{2, 4, 5, 3, packed.tokens == 40}, packed};
    const DeltaInputs in(random, c, Dtype::fp64);
    constexpr std::int64_t kSegments = 4, kTokens = 10;
    for (std::int64_t i = 0; i < kSegments; ++i) {
      const bool goes_on = i > 0 && packed.same(i * kTokens - 1, i * kTokens);
      Values before(at(c.shape.values() * c.shape.key_dim)), behind = before;
      if (goes_on)
        before = delta_forward(c.part(0, i * kTokens), Dtype::fp64, in.part(c, 0, i * kTokens))
                     .final_state;
      const std::int64_t end = (i + 1) * kTokens, rest = packed.tokens - end;
      if (rest > 0 && packed.same(end - 1, end)) {
        DeltaInputs later = in.part(c, end, rest);
        later.initial = Values(before.size());
        behind = delta_backward(c.part(end, rest), Dtype::fp64, later).dinitial;
      }
      const auto far = [](const Values& a, const Values& b) {
        return std::min(relative_error(a, b), rms_difference(a, b));
      };
      EXPECT_LT(far(entering<false>(c, in, kSegments, i), before), 1e-12) << "segment " << i;
      EXPECT_LT(far(entering<true>(c, in, kSegments, i), behind), 1e-12) << "segment " << i;
    }
  }
}

TEST(gated_delta, storage_types) {
  Random random;
  std::vector<DeltaCase> all = cases();
  all.push_back(large_case());
  all.push_back(large_case(true));
  for (const DeltaCase& c : all)
    for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
      const DeltaInputs in(random, c, storage);
      const double terms = static_cast<double>(c.packed.tokens * c.shape.key_dim);
      EXPECT_LT(
          relative_error(delta_forward(c, storage, in).y, delta_forward(c, Dtype::fp64, in).y),
          tolerance(storage, terms, 8));
      const DeltaGradients expected = delta_backward(c, Dtype::fp64, in);
      const DeltaGradients actual = delta_backward(c, storage, in);
      for (const Pair& pair : kPairs) {
        if ((c.packed.tokens == 1 && pair.summed) || (in.*pair.input).empty()) continue;  // 0
        EXPECT_LT(relative_error(actual.*pair.gradient, expected.*pair.gradient),
                  tolerance(pair.summed ? Dtype::fp32 : storage,
                            terms * static_cast<double>(c.shape.value_dim), 32))
            << pair.name << " in " << execution::name(storage) << ", tokens " << c.packed.tokens;
      }
    }
}

// A decay that underflows forgets, exactly as a border does; nothing becomes NaN.
TEST(gated_delta, strong_decay_is_finite) {
  Random random;
  for (const bool channel_decay : {false, true}) {
    const DeltaCase c{{1, 2, 4, 4, channel_decay}, Packed({37})};
    DeltaInputs in(random, c, Dtype::fp32);
    in.a_log = {6, 8};
    for (const Values& values :
         {delta_forward(c, Dtype::fp32, in).y, delta_backward(c, Dtype::fp32, in).dqkv,
          delta_backward(c, Dtype::fp32, in).dba})
      for (const double value : values) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(gated_delta, wrong_sizes_are_named) {
  EXPECT_EQ((GatedDeltaShape{2, 3, 4, 4}).fault(), "value_heads is not a multiple of key_heads");
  EXPECT_EQ((GatedDeltaShape{2, 4, 0, 4}).fault(), "a head has no width");
  EXPECT_EQ((GatedDeltaEnter<false>{{1, 1, 2, 2}, 10, 3, 0, Dtype::fp32}).fault(),
            "the tokens do not divide into segments");
  for (const int segment : {-1, 2})
    EXPECT_EQ((GatedDeltaEnter<false>{{1, 1, 2, 2}, 10, 2, segment, Dtype::fp32}).fault(),
              "there is no such segment");
}

TEST(gated_delta, costs_its_products_and_what_it_moves) {
  const GatedDeltaShape shape{2, 4, 8, 6};  // columns: q and k 16 each, v 24
  const double head = 4 * 10, state = 2 * 8 * 6, pair = 64 * (8 + 6);
  const double inputs = 2 * (10 * (56 + 8) + 8) + 4 * 10;
  const execution::Cost forward = GatedDeltaForward{shape, 10, Dtype::bf16}.cost();
  EXPECT_EQ(forward.flops, head * (3 * state + 2 * pair));
  EXPECT_EQ(forward.bytes, inputs + 2 * 10 * 24);
  const execution::Cost backward = GatedDeltaBackward{shape, 10, Dtype::bf16, false}.cost();
  EXPECT_EQ(backward.flops, head * (8 * state + 5 * pair));
  EXPECT_EQ(backward.bytes, 2 * inputs + 2 * 10 * 24 + 4 * 8);
  const execution::Cost segment = GatedDeltaSegment<false>{shape, 10, Dtype::bf16}.cost();
  EXPECT_EQ(segment.flops, head * (2 * 2 * 8 * 14 + 64 * (8 + 14)));
  EXPECT_EQ(segment.bytes, inputs + 4 * 4 * 8 * 14);
}

}  // namespace
}  // namespace stowage::kernels::test
