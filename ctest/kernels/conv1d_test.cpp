#include "kernels/conv1d/conv1d.hpp"
#include "kernels/conv1d/halo.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "ctest/kernels/operator_arrays.hpp"
#include "ctest/kernels/packed.hpp"
#include "execution/error.hpp"

namespace stowage::kernels::test {
namespace {

struct Case {
  std::int64_t channels;
  Packed packed;
  std::int64_t width = 4;

  template <class Op>
  Op op(Dtype storage) const {
    Op op{};
    op.tokens = packed.tokens;
    op.channels = channels;
    op.width = width;
    op.storage = storage;
    return op;
  }
};

std::vector<Case> cases() {
  return {{1, Packed({1})},
          {3, Packed({1, 1, 2, 3, 4, 5, 0, 6})},
          {5, Packed({63, 2, 70, 1, 1}, 3)},  // boundaries around the blocks of 64 tokens
          {130, Packed({40, 30})},
          {3, Packed({1, 1, 2, 3, 4, 5, 0, 6}), 3},
          {5, Packed({63, 2, 70, 1, 1}, 3), 2},
          {130, Packed({40, 30}), 3}};
}

struct Inputs {
  Inputs(Random& random, const Case& c, Dtype storage)
      : x(rounded(random.normal(c.packed.tokens * c.channels), storage)),
        w(rounded(random.normal(c.channels * c.width, 0.5), storage)),
        b(rounded(random.normal(c.channels, 0.5), storage)),
        dy(rounded(random.normal(c.packed.tokens * c.channels), storage)) {}
  Values x, w, b, dy;
};

// Of either direction, with what both read.
template <class Op>
Arrays<Op> arrays(const Op& op, const Case& c, const Inputs& in) {
  Random unused;
  const Arrays<Op> o = make_arrays(op, unused);
  set(o.x, in.x);
  set(o.w, in.w);
  if (op.biased) set(o.b, in.b);
  set(o.seq_idx, {c.packed.document.begin(), c.packed.document.end()});
  return o;
}

// The formula of the contract, term by term.
Values plain_forward(const Case& c, const Values& x, const Values& w, const Values& b) {
  Values y(x.size());
  for (std::int64_t t = 0; t < c.packed.tokens; ++t)
    for (std::int64_t j = 0; j < c.channels; ++j) {
      double sum = b[at(j)];
      for (std::int64_t k = 0; k < c.width; ++k) {
        const std::int64_t s = t - c.width + 1 + k;
        if (s >= 0 && c.packed.same(s, t))
          sum += w[at(j * c.width + k)] * x[at(s * c.channels + j)];
      }
      y[at(t * c.channels + j)] = sum / (1 + std::exp(-sum));
    }
  return y;
}

Values magnitudes(Values values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

// What the terms of each sum add up to without their signs: where they cancel, roundings are as
// large as the terms, not as the sum, and a case may have a single output.
Values terms(const Case& c, const Inputs& in) {
  const Values x = magnitudes(in.x), w = magnitudes(in.w), b = magnitudes(in.b);
  Values sums(x.size());
  for (std::int64_t t = 0; t < c.packed.tokens; ++t)
    for (std::int64_t j = 0; j < c.channels; ++j) {
      double& sum = sums[at(t * c.channels + j)];
      sum = b[at(j)];
      for (std::int64_t k = 0; k < c.width; ++k) {
        const std::int64_t s = t - c.width + 1 + k;
        if (s >= 0 && c.packed.same(s, t))
          sum += w[at(j * c.width + k)] * x[at(s * c.channels + j)];
      }
    }
  return sums;
}

Values forward(const Case& c, Dtype storage, const Inputs& in) {
  const Arrays<Conv1dForward> o = arrays(c.op<Conv1dForward>(storage), c, in);
  run(c.op<Conv1dForward>(storage), o);
  return o.y.values();
}

struct Gradients {
  Values dx, dw, db;
};

// Runs twice, storing and then adding: the second run must double dw and db and leave dx.
Gradients backward(const Case& c, Dtype storage, const Inputs& in) {
  Conv1dBackward op = c.op<Conv1dBackward>(storage);
  const Arrays<Conv1dBackward> o = arrays(op, c, in);
  set(o.dy, in.dy);
  const auto results = [&](bool accumulate) {
    op.accumulate = accumulate;
    run(op, o);
    return Gradients{stored(o.dx), o.dw.values(), o.db.values()};
  };
  const Gradients first = results(false), added = results(true);
  const double twice = 4 * execution::epsilon(execution::accumulation(storage));
  EXPECT_EQ(added.dx, first.dx);
  EXPECT_LT(relative_error(added.dw, doubled(first.dw)), twice);
  EXPECT_LT(relative_error(added.db, doubled(first.db)), twice);
  return first;
}

TEST(conv1d, forward_is_the_formula) {
  Random random;
  for (const Case& c : cases())
    for (const Dtype storage : kFloatingTypes) {
      const Inputs in(random, c, storage);
      const Values expected = plain_forward(c, in.x, in.w, in.b), sums = terms(c, in);
      const double error = relative_error(forward(c, storage, in), expected) *
                           std::sqrt(dot(expected, expected) / dot(sums, sums));
      EXPECT_LT(error, tolerance(storage, 4, 4));  // silu's slope is at most 1.1
    }
}

TEST(conv1d, gradients_by_finite_differences) {
  Random random;
  for (const Case& c : cases()) {
    if (c.channels > 5) continue;
    const Inputs in(random, c, Dtype::fp64);
    const Gradients gradients = backward(c, Dtype::fp64, in);
    const auto loss = [&](const Values& x, const Values& w, const Values& b) {
      return dot(plain_forward(c, x, w, b), in.dy);
    };
    const Values dx = numeric_gradient(in.x, [&](const Values& v) { return loss(v, in.w, in.b); });
    const Values dw = numeric_gradient(in.w, [&](const Values& v) { return loss(in.x, v, in.b); });
    const Values db = numeric_gradient(in.b, [&](const Values& v) { return loss(in.x, in.w, v); });
    EXPECT_LT(relative_error(gradients.dx, dx), 1e-8);
    EXPECT_LT(relative_error(gradients.dw, dw), 1e-8);
    EXPECT_LT(relative_error(gradients.db, db), 1e-8);
  }
}

// Without a bias as with one of zeros, to the bit.
TEST(conv1d, a_bias_may_be_left_out) {
  Random random;
  for (const Case& c : cases())
    for (const Dtype storage : kFloatingTypes) {
      Inputs in(random, c, storage);
      in.b.assign(in.b.size(), 0);
      const Gradients expected = backward(c, storage, in);
      Conv1dForward forward_op = c.op<Conv1dForward>(storage);
      Conv1dBackward backward_op = c.op<Conv1dBackward>(storage);
      forward_op.biased = backward_op.biased = false;
      const Arrays<Conv1dForward> f = arrays(forward_op, c, in);
      const Arrays<Conv1dBackward> b = arrays(backward_op, c, in);
      set(b.dy, in.dy);
      run(forward_op, f);
      run(backward_op, b);
      EXPECT_EQ(f.y.values(), forward(c, storage, in));
      EXPECT_EQ(stored(b.dx), expected.dx);
      EXPECT_EQ(b.dw.values(), expected.dw);
    }
}

TEST(conv1d, gradients_in_storage_types) {
  Random random;
  for (const Case& c : cases())
    for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
      const Inputs in(random, c, storage);
      const Gradients expected = backward(c, Dtype::fp64, in), actual = backward(c, storage, in);
      if (c.packed.tokens == 1) continue;  // one value may cancel: silu has a minimum
      // dw and db are not rounded to storage.
      const double sums = tolerance(Dtype::fp32, static_cast<double>(c.packed.tokens), 8);
      EXPECT_LT(relative_error(actual.dx, expected.dx), tolerance(storage, 8, 8));
      EXPECT_LT(relative_error(actual.dw, expected.dw), sums);
      EXPECT_LT(relative_error(actual.db, expected.db), sums);
    }
}

// What a document holds changes nothing in another one.
TEST(conv1d, documents_are_apart) {
  Random random;
  const Case c{4, Packed({5, 2, 9})};
  Inputs in(random, c, Dtype::fp32);
  const Values before = forward(c, Dtype::fp32, in);
  for (std::int64_t i = 5 * c.channels; i < 7 * c.channels; ++i) in.x[at(i)] += 1;
  const Values after = forward(c, Dtype::fp32, in);
  for (std::int64_t t = 0; t < c.packed.tokens; ++t)
    for (std::int64_t j = 0; j < c.channels; ++j)
      EXPECT_EQ(before[at(t * c.channels + j)] == after[at(t * c.channels + j)],
                c.packed.document[at(t)] != 1)
          << "token " << t;
}

// An exchange of the rows before `cut`, of segments of `cut` tokens.
template <class Op>
Op border(std::int64_t cut, std::int64_t channels, std::int64_t tokens, Dtype storage) {
  return {.tokens = cut,
          .channels = channels,
          .sequence_tokens = tokens,
          .border = cut,
          .storage = storage};
}

// A sequence in two segments: the second is handed three rows of the first, whose gradient gets
// the second's share, and together they are the whole, wherever it is cut.
void expect_halo(std::int64_t width) {
  SCOPED_TRACE(testing::Message() << "width " << width);
  Random random;
  const Case whole{3, Packed({5, 8, 9}), width};
  const Inputs in(random, whole, Dtype::fp64);
  const Values expected = forward(whole, Dtype::fp64, in);
  const Gradients gradients = backward(whole, Dtype::fp64, in);
  const std::int64_t n = whole.packed.tokens, channels = whole.channels;
  const Array all = whole.packed.seq_idx();
  for (const std::int64_t cut : {3, 5, 6, 7, 8, 9, 12, 19, 20, 21}) {
    const auto part = [&](const Values& values, bool second) {
      const auto middle = values.begin() + cut * channels;
      return second ? Values(middle, values.end()) : Values(values.begin(), middle);
    };
    const Conv1dHaloRows take = border<Conv1dHaloRows>(cut, channels, n, Dtype::fp64);
    const Conv1dHaloAdd give = border<Conv1dHaloAdd>(cut, channels, n, Dtype::fp64);
    const Array halo(Dtype::fp64, {3, channels}), dhalo(Dtype::fp64, {3, channels});
    Values y, dx, dw(at(width * channels));
    for (const bool second : {true, false}) {
      Case c = whole;
      c.packed.tokens = second ? n - cut : cut;
      const auto begin = whole.packed.document.begin() + (second ? cut : 0);
      c.packed.document.assign(begin, begin + c.packed.tokens);
      Inputs own = in;
      own.x = part(in.x, second);
      Conv1dForward forward = c.op<Conv1dForward>(Dtype::fp64);
      Conv1dBackward backward = c.op<Conv1dBackward>(Dtype::fp64);
      forward.halo = backward.halo = second;
      Arrays<Conv1dForward> f = arrays(forward, c, own);
      Arrays<Conv1dBackward> b = arrays(backward, c, own);
      set(b.dy, part(in.dy, second));
      if (second) {
        const Array x(Dtype::fp64, {cut, channels}, part(in.x, false));
        run(take, {.x = {x, 0, channels}, .seq_idx = all, .rows = halo});
        f.halo = b.halo = halo;
        b.dhalo = dhalo;
      }
      run(forward, f);
      run(backward, b);
      if (!second) run(give, {.gradient = dhalo, .seq_idx = all, .dx = b.dx});
      const Values out = f.y.values(), dout = stored(b.dx);
      y.insert(y.begin(), out.begin(), out.end());
      dx.insert(dx.begin(), dout.begin(), dout.end());
      const Values sums = b.dw.values();
      for (std::size_t i = 0; i < dw.size(); ++i) dw[i] += sums[i];
    }
    EXPECT_LT(relative_error(y, expected), 1e-14) << "cut at " << cut;
    EXPECT_LT(relative_error(dx, gradients.dx), 1e-14) << "cut at " << cut;
    EXPECT_LT(relative_error(dw, gradients.dw), 1e-13) << "cut at " << cut;
  }
}

TEST(conv1d, segments_hand_a_halo_on) {
  for (const std::int64_t width : {2, 3, 4}) expect_halo(width);
}

// Three rows before a border, of those tokens whose document goes on behind it.
TEST(conv1d, rows_at_a_border_are_those_of_its_document) {
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const Packed& packed : {Packed({11}), Packed({7, 4}), Packed({5, 1, 1, 4}),
                                 Packed({1, 5, 1}, 4), Packed({4, 0, 2, 1, 4})})
      for (const std::int64_t channels : {1, 5})
        for (std::int64_t cut = 3; cut < packed.tokens; ++cut) {
          const auto take = border<Conv1dHaloRows>(cut, channels, packed.tokens, storage);
          const auto give = border<Conv1dHaloAdd>(cut, channels, packed.tokens, storage);
          const Array all = packed.seq_idx();
          Arrays<Conv1dHaloRows> t = make_arrays(take, random);
          Arrays<Conv1dHaloAdd> g = make_arrays(give, random);
          t.seq_idx = g.seq_idx = all;
          const Values x = values(t.x), dx = values(g.dx), gradient = g.gradient.values();
          run(take, t);
          run(give, g);
          Values wanted(at(3 * channels), 0.0), sums = dx;
          for (std::int64_t i = 0; i < 3 * channels; ++i) {
            const std::int64_t token = cut - 3 + i / channels;
            if (!packed.same(token, cut)) continue;
            const std::size_t j = at(token * channels + i % channels);
            wanted[at(i)] = x[j];
            sums[j] = rounded({dx[j] + gradient[at(i)]}, storage)[0];
          }
          EXPECT_EQ(t.rows.values(), wanted) << "border " << cut;
          EXPECT_EQ(stored(g.dx), sums) << "border " << cut;
        }
}

TEST(conv1d, wrong_operands_are_named) {
  Random random;
  for (const std::int64_t width : {1, 5}) {
    const Conv1dForward op{.tokens = 4, .channels = 3, .width = width, .storage = Dtype::fp32};
    try {
      run(op, make_arrays(op, random));
      FAIL() << width << " taps were taken";
    } catch (const execution::Error& error) {
      EXPECT_NE(std::string(error.what()).find("conv1d_silu_forward: w"), std::string::npos)
          << error.what();
    }
  }
}

TEST(conv1d, costs_its_taps_and_what_it_moves) {
  const Conv1dForward forward{.tokens = 10, .channels = 8, .width = 4, .storage = Dtype::bf16};
  EXPECT_EQ(forward.cost().flops, (2.0 * 4 + 5) * 80);
  EXPECT_EQ(forward.cost().bytes, 2 * 2.0 * 80 + 2 * 5 * 8 + 4 * 10);
  const Conv1dBackward backward{
      .tokens = 10, .channels = 8, .width = 4, .storage = Dtype::bf16, .accumulate = false};
  EXPECT_EQ(backward.cost().flops, (6.0 * 4 + 10) * 80);
  EXPECT_EQ(backward.cost().bytes, 3 * 2.0 * 80 + (2 + 4) * 5 * 8 + 4 * 10);
}

}  // namespace
}  // namespace stowage::kernels::test
