#include "kernels/conv1d/conv1d.hpp"
#include "kernels/conv1d/halo.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "ctest/kernels/packed.hpp"
#include "ctest/kernels/support.hpp"
#include "execution/error.hpp"

namespace stowage::kernels::test {
namespace {

struct Case {
  std::int64_t channels;
  Packed packed;
  std::int64_t width = 4;
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
  const Array x = embedded(storage, c.packed.tokens, c.channels, 3, in.x);
  const Array w(storage, {c.channels, c.width}, in.w), b(storage, {c.channels}, in.b);
  const Array y(storage, {c.packed.tokens, c.channels}), seq_idx = c.packed.seq_idx();
  on_queue([&](Queue& q) { conv1d_silu_forward(q, x.columns(3, c.channels), w, b, seq_idx, y); });
  return y.values();
}

struct Gradients {
  Values dx, dw, db;
};

// Runs twice, storing and then adding: the second run must double dw and db and leave dx.
Gradients backward(const Case& c, Dtype storage, const Inputs& in) {
  const std::int64_t n = c.packed.tokens;
  const Dtype sums = execution::accumulation(storage);
  const Array x = embedded(storage, n, c.channels, 1, in.x);
  const Array w(storage, {c.channels, c.width}, in.w), b(storage, {c.channels}, in.b);
  const Array dy(storage, {n, c.channels}, in.dy), dx(storage, {n, c.channels + 5});
  const Array dw(sums, {c.channels, c.width}), db(sums, {c.channels}), seq_idx = c.packed.seq_idx();
  const auto run = [&](bool accumulate) {
    const Array room = workspace(conv1d_silu_backward_workspace_bytes(n, c.channels, storage));
    on_queue([&](Queue& q) {
      conv1d_silu_backward(q,
                           {.dy = dy,
                            .x = x.columns(1, c.channels),
                            .w = w,
                            .b = b,
                            .seq_idx = seq_idx,
                            .dx = dx.columns(2, c.channels),
                            .dw = dw,
                            .db = db,
                            .workspace = room},
                           accumulate);
    });
    return Gradients{columns_of(dx, 2, c.channels), dw.values(), db.values()};
  };
  const Gradients stored = run(false), added = run(true);
  EXPECT_EQ(added.dx, stored.dx);
  EXPECT_LT(relative_error(added.dw, doubled(stored.dw)), 4 * execution::epsilon(sums));
  EXPECT_LT(relative_error(added.db, doubled(stored.db)), 4 * execution::epsilon(sums));
  return stored;
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
  const Array w(Dtype::fp64, {channels, width}, in.w), b(Dtype::fp64, {channels}, in.b);
  for (const std::int64_t cut : {3, 5, 6, 7, 8, 9, 12, 19, 20, 21}) {
    const auto rows = [&](const Values& values, std::int64_t begin, std::int64_t end) {
      return Values(values.begin() + begin * channels, values.begin() + end * channels);
    };
    const Array all = whole.packed.seq_idx(), halo(Dtype::fp64, {3, channels});
    const Array dhalo(Dtype::fp64, {3, channels});
    const Array first_x(Dtype::fp64, {cut, channels}, rows(in.x, 0, cut));
    on_queue([&](Queue& q) { conv1d_halo_rows(q, first_x.columns(0, channels), all, cut, halo); });
    Values y, dx, dw(at(width * channels));
    for (const bool second : {true, false}) {
      const std::int64_t begin = second ? cut : 0, end = second ? n : cut;
      const std::int64_t tokens = end - begin;
      const auto array = [&](const Values& values) {
        return Array(Dtype::fp64, {tokens, channels}, rows(values, begin, end));
      };
      const Array x = array(in.x), dy = array(in.dy), out(Dtype::fp64, {tokens, channels});
      const Array dout(Dtype::fp64, {tokens, channels}), dsum(Dtype::fp64, {channels, width});
      const Array db(Dtype::fp64, {channels});
      const Array seq_idx =
          int32_array({whole.packed.document.begin() + begin, whole.packed.document.begin() + end});
      const Conv1dHalo ends = second ? Conv1dHalo{halo, dhalo} : Conv1dHalo{};
      const Array room =
          workspace(conv1d_silu_backward_workspace_bytes(tokens, channels, Dtype::fp64));
      on_queue([&](Queue& q) {
        conv1d_silu_forward(q, x.columns(0, channels), w, b, seq_idx, out, ends);
        conv1d_silu_backward(q,
                             {.dy = dy,
                              .x = x.columns(0, channels),
                              .w = w,
                              .b = b,
                              .seq_idx = seq_idx,
                              .dx = dout.columns(0, channels),
                              .dw = dsum,
                              .db = db,
                              .workspace = room},
                             false, ends);
        if (!second) conv1d_halo_add(q, dhalo, all, cut, dout.columns(0, channels));
      });
      const Values part = out.values(), dpart = dout.values();
      y.insert(y.begin(), part.begin(), part.end());
      dx.insert(dx.begin(), dpart.begin(), dpart.end());
      const Values sums = dsum.values();
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
        for (std::int64_t border = 3; border < packed.tokens; ++border) {
          const Values x = rounded(random.normal(border * channels), storage);
          const Values dx = rounded(random.normal(border * channels), storage);
          const Values gradient = rounded(random.normal(3 * channels), storage);
          const Array from = embedded(storage, border, channels, 2, x);
          const Array onto = embedded(storage, border, channels, 1, dx);
          const Array all = packed.seq_idx(), rows(storage, {3, channels});
          const Array share(storage, {3, channels}, gradient);
          on_queue([&](Queue& q) {
            conv1d_halo_rows(q, from.columns(2, channels), all, border, rows);
            conv1d_halo_add(q, share, all, border, onto.columns(1, channels));
          });
          Values wanted(at(3 * channels), 0.0), sums = dx;
          for (std::int64_t i = 0; i < 3 * channels; ++i) {
            const std::int64_t token = border - 3 + i / channels;
            if (!packed.same(token, border)) continue;
            const std::size_t j = at(token * channels + i % channels);
            wanted[at(i)] = x[j];
            sums[j] = rounded({dx[j] + gradient[at(i)]}, storage)[0];
          }
          EXPECT_EQ(rows.values(), wanted) << "border " << border;
          const Values wide = onto.values();
          for (std::int64_t i = 0; i < border * channels; ++i)
            ASSERT_EQ(wide[at(i / channels * (channels + 3) + 1 + i % channels)], sums[at(i)])
                << "border " << border;
        }
}

TEST(conv1d, wrong_operands_are_named) {
  const Array x(Dtype::fp32, {4, 6}), b(Dtype::fp32, {3});
  const Array y(Dtype::fp32, {4, 3}), seq_idx = int32_array({0, 0, 0, 0});
  for (const std::int64_t width : {1, 5}) {
    const Array w(Dtype::fp32, {3, width});
    try {
      on_queue([&](Queue& q) { conv1d_silu_forward(q, x.columns(0, 3), w, b, seq_idx, y); });
      FAIL() << width << " taps were taken";
    } catch (const execution::Error& error) {
      EXPECT_NE(std::string(error.what()).find("conv1d_silu_forward: w"), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace stowage::kernels::test
