// Muon's operators against their formulas.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ctest/kernels/newton_schulz_tolerance.hpp"
#include "ctest/kernels/operator_arrays.hpp"
#include "execution/error.hpp"
#include "kernels/optimizer/move_pieces.hpp"
#include "kernels/optimizer/muon.hpp"
#include "kernels/optimizer/newton_schulz_launch.hpp"

namespace stowage::kernels::test {
namespace {

/// Row-major (rows, columns).
struct Plain {
  std::int64_t rows, columns;
  Values values;

  double& at(std::int64_t i, std::int64_t j) {
    return values[static_cast<std::size_t>(i * columns + j)];
  }
};

Plain product(const Plain& a, const Plain& b) {
  Plain c{a.rows, b.columns, Values(static_cast<std::size_t>(a.rows * b.columns))};
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t k = 0; k < a.columns; ++k) {
      const double left = a.values[static_cast<std::size_t>(i * a.columns + k)];
      const double* right = b.values.data() + k * b.columns;
      double* sums = c.values.data() + i * c.columns;
      for (std::int64_t j = 0; j < b.columns; ++j) sums[j] += left * right[j];
    }
  return c;
}

Plain transposed(Plain a) {
  Plain b{a.columns, a.rows, a.values};
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.columns; ++j) b.at(j, i) = a.at(i, j);
  return b;
}

// As the paper writes it: of a tall matrix the transposed one is treated.
Values formula(const NewtonSchulz& op, const Values& x) {
  const auto [count, rows, columns, scale] = op.matrices.front();
  Plain m{rows, columns, x};
  if (rows > columns) m = transposed(m);
  double norm = 0;
  for (const double value : x) norm += value * value;
  for (double& value : m.values) value /= std::sqrt(norm) + 1e-7;
  const auto [a, b, c] = op.options.coefficients;
  for (int step = 0; step < op.options.steps; ++step) {
    const Plain gram = product(m, transposed(m));
    Plain sum = product(gram, gram);
    for (std::size_t i = 0; i < sum.values.size(); ++i)
      sum.values[i] = b * gram.values[i] + c * sum.values[i];
    const Plain more = product(sum, m);
    for (std::size_t i = 0; i < m.values.size(); ++i)
      m.values[i] = a * m.values[i] + more.values[i];
  }
  if (rows > columns) m = transposed(m);
  for (double& value : m.values) value *= scale;
  return m.values;
}

NewtonSchulz of_one_shape(const EqualMatrices& m, Dtype storage, NewtonSchulzOptions options = {}) {
  return {.matrices = {m}, .options = options, .storage = storage};
}

Values result(const NewtonSchulz& op, const Values& x) {
  Arrays<NewtonSchulz> o{.matrices = {}, .workspace = workspace(op.workspace_bytes())};
  Values all;
  auto begin = x.begin();
  for (const EqualMatrices& m : op.matrices) {
    o.matrices.push_back({.x = Array(op.storage, {m.count, m.rows, m.columns},
                                     Values(begin, begin + m.elements()))});
    begin += m.elements();
  }
  test::run(op, o);
  for (std::size_t i = 0; i < op.matrices.size(); ++i) {
    const Values some = o.matrices[i].x.values();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

TEST(muon, newton_schulz_is_the_formula) {
  Random random;
  for (const auto& [rows, columns] :
       {std::pair{1, 1}, {1, 9}, {7, 1}, {12, 40}, {40, 12}, {33, 33}, {150, 300}, {300, 140}})
    for (const int steps : {1, 4, 5}) {
      const NewtonSchulz op = of_one_shape({1, rows, columns, 1.5}, Dtype::fp64, {.steps = steps});
      const Values x = random.normal(std::int64_t{rows} * columns, 1e-3);
      EXPECT_LT(relative_error(result(op, x), formula(op, x)), 1e-11)
          << rows << " x " << columns << ", " << steps << " steps";
    }
}

// Singular values come near one.
TEST(muon, newton_schulz_makes_matrices_nearly_orthogonal) {
  Random random;
  for (const auto& [storage, within] : {std::pair{Dtype::fp32, 0.35}, {Dtype::bf16, 0.4}}) {
    const NewtonSchulz op = of_one_shape({1, 64, 256}, storage);
    Plain x{64, 256, result(op, random.normal(64 * 256))};
    Plain gram = product(x, transposed(x));
    for (std::int64_t i = 0; i < 64; ++i) EXPECT_NEAR(std::sqrt(gram.at(i, i)), 1, within);
  }
}

TEST(muon, newton_schulz_in_narrow_types_is_near_fp64) {
  Random random;
  for (const Dtype storage : {Dtype::fp32, Dtype::bf16})
    for (const auto& [rows, columns] : {std::pair{24, 200}, {200, 24}, {130, 257}}) {
      NewtonSchulz op = of_one_shape({1, rows, columns, 0.2}, storage);
      const Values x = rounded(random.normal(std::int64_t{rows} * columns), storage);
      const Values narrow = result(op, x);
      op.storage = Dtype::fp64;
      EXPECT_LT(relative_error(narrow, result(op, x)), newton_schulz_tolerance(op, storage))
          << rows << " x " << columns << " " << name(storage);
    }
}

/// Nearest number of fp16.
double fp16(double value) {
  constexpr int kBits = 11, kLeast = -24;
  int exponent = 0;
  std::frexp(value, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - kBits, kLeast));
  return std::nearbyint(value / unit) * unit;
}

Plain rounded_product(const Plain& a, const Plain& b) {
  Plain c = product(a, b);
  for (double& value : c.values) value = fp16(value);
  return c;
}

// What newton_schulz_sm90.cu does with a wide matrix, in plain loops.
Values on_gram_in_fp16(const EqualMatrices& m, const NewtonSchulzOptions& options,
                       const Values& given) {
  Plain x{m.rows, m.columns, given};
  double norm = 0;
  for (const double value : given) norm += value * value;
  for (double& value : x.values) value = fp16(kFp16Norm * value / (std::sqrt(norm) + 1e-7));
  const auto [a, b, c] = options.coefficients;
  const double square = kFp16Norm * kFp16Norm;
  for (const int part : gram_iterations(m, options)) {
    Plain gram = rounded_product(x, transposed(x)), power;
    for (int i = 0; i < part; ++i) {
      Plain polynomial = rounded_product(gram, gram);
      for (std::int64_t r = 0; r < m.rows; ++r)
        for (std::int64_t s = 0; s < m.rows; ++s)
          polynomial.at(r, s) = fp16((r == s ? a : 0) + b / square * gram.at(r, s) +
                                     c / square / square * polynomial.at(r, s));
      power = i == 0 ? polynomial : rounded_product(power, polynomial);
      gram = rounded_product(rounded_product(gram, polynomial), polynomial);
    }
    x = rounded_product(power, x);
  }
  for (double& value : x.values) value *= m.scale / kFp16Norm;
  return x.values;
}

// Of matrices with singular values far apart, too: nearer to fp64 than the plain form in bf16.
TEST(muon, iterations_on_the_gram_matrix_lose_less_in_fp16_than_others_in_bf16) {
  Random random;
  const EqualMatrices m{1, 128, 256};
  EXPECT_EQ(gram_iterations(m, {}), (std::vector{3, 2}));
  const Values noise = random.normal(128 * 256);
  const auto matrix = [&](auto&& value) {
    Values x(noise.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = value(static_cast<int>(i / 256), static_cast<int>(i % 256), noise[i]);
    return rounded(x, Dtype::bf16);
  };
  const std::pair<const char*, Values> cases[] = {
      {"Gaussian", matrix([](int, int, double z) { return z; })},
      {"condition 1e4", matrix([](int i, int, double z) { return z * std::pow(1e-4, i / 127.0); })},
      {"rank 8", matrix([](int i, int j, double z) {
         return std::cos(0.1 * (i % 8) * j + (i % 8)) * (1 + i / 8) + 1e-3 * z;
       })},
      {"rank 1",
       matrix([](int i, int j, double z) { return (1 + i % 3) * std::cos(j) + 1e-2 * z; })}};
  for (const auto& [name, x] : cases) {
    const Values plain = result(of_one_shape(m, Dtype::bf16), x);
    const Values exact = result(of_one_shape(m, Dtype::fp64), x);
    const Values on_gram = on_gram_in_fp16(m, {}, x);
    EXPECT_LT(relative_error(on_gram, exact), 0.5 * relative_error(plain, exact)) << name;
  }
}

// Coefficients that make small singular values grow faster leave rounding less room.
TEST(muon, iterations_on_the_gram_matrix_are_fewer_for_larger_coefficients) {
  const EqualMatrices m{1, 1024, 4096};
  EXPECT_EQ(gram_iterations(m, {.steps = 6}), (std::vector{3, 3}));
  EXPECT_EQ(gram_iterations(m, {{8.3, -4.7, 2}, 6}), (std::vector{2, 2, 2}));
  EXPECT_EQ(gram_iterations(m, {{20, -4.7, 2}, 6}), std::vector(6, 1));
  // X is no larger than A.
  EXPECT_EQ(gram_iterations({1, 1024, 1024}, {}), std::vector(5, 1));
}

TEST(muon, a_matrix_has_the_same_bits_among_others) {
  Random random;
  for (const Dtype storage : kFloatingTypes) {
    const NewtonSchulz together{
        .matrices = {{2, 33, 9}, {5, 20, 50}}, .options = {}, .storage = storage};
    const Values x = random.normal(2 * 297 + 5000);
    const Values all = result(together, x);
    for (int i = 0; i < 5; ++i) {
      const auto first = 2 * 297 + i * 1000;
      const Values one(x.begin() + first, x.begin() + first + 1000);
      EXPECT_EQ(result(of_one_shape({1, 20, 50}, storage), one),
                Values(all.begin() + first, all.begin() + first + 1000));
    }
  }
}

TEST(muon, no_gradient_makes_no_update) {
  EXPECT_EQ(result(of_one_shape({2, 9, 5}, Dtype::bf16), Values(90)), Values(90));
}

TEST(muon, momentum_is_the_formula) {
  Random random;
  constexpr double kNorm = 4, kClip = 1, kMomentum = 0.9;
  for (const Dtype storage : kFloatingTypes)
    for (const bool nesterov : {false, true})
      for (const std::int32_t ok : {1, 0}) {
        const Dtype sums = execution::accumulation(storage);
        const std::int64_t count = 9001;
        const Values g = rounded(random.normal(count), sums),
                     m = rounded(random.normal(count), sums);
        const Array gradient(sums, {count}, g), state(sums, {count}, m),
            norm(sums, {1}, Values{kNorm});
        const Array direction(storage, {count});
        Arrays<MuonMomentum> o{.norm = norm, .step_ok = int32_array({ok}), .tensors = {}};
        o.tensors.push_back({.gradient = gradient, .m = state, .direction = direction});
        test::run(MuonMomentum{.elements = {count},
                               .storage = storage,
                               .clip = kClip,
                               .momentum = kMomentum,
                               .nesterov = nesterov},
                  o);
        Values expected_m = m, expected(g.size());
        for (std::size_t i = 0; i < g.size() && ok != 0; ++i) {
          const double clipped = g[i] * kClip / (kNorm + 1e-6);
          expected_m[i] = kMomentum * m[i] + clipped;
          expected[i] = nesterov ? clipped + kMomentum * expected_m[i] : expected_m[i];
        }
        EXPECT_LT(relative_error(state.values(), expected_m), 8 * execution::epsilon(sums));
        if (ok == 0) {
          EXPECT_EQ(direction.values(), expected);
        } else {
          EXPECT_LT(relative_error(direction.values(), expected),
                    8 * execution::epsilon(sums) + execution::epsilon(storage));
        }
      }
}

TEST(muon, update_is_the_formula) {
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const bool has_master : {false, true})
      for (const std::int32_t ok : {1, 0}) {
        const Dtype sums = execution::accumulation(storage);
        const std::int64_t count = 8195;
        const Dtype of_old = has_master ? sums : storage;
        const Values old = rounded(random.normal(count), of_old);
        const Values u = rounded(random.normal(count), storage);
        const Array parameter(storage, {count}, old), update(storage, {count}, u);
        const Array master = has_master ? Array(sums, {count}, old) : Array();
        Arrays<MuonUpdate> o{.schedule = Array(sums, {2}, Values{0.25, 0.125}),
                             .step_ok = int32_array({ok}),
                             .tensors = {}};
        o.tensors.push_back({.parameter = parameter, .master = master, .update = update});
        test::run(
            MuonUpdate{.pieces = {{count, 0.5, 2}}, .storage = storage, .has_master = has_master},
            o);
        Values expected = old;
        for (std::size_t i = 0; i < old.size() && ok != 0; ++i)
          expected[i] = old[i] - 0.5 * (u[i] + 0.0625 * old[i]);
        EXPECT_LT(relative_error((has_master ? master : parameter).values(), expected),
                  4 * execution::epsilon(of_old));
        if (has_master && ok != 0) {
          EXPECT_EQ(parameter.values(), rounded(master.values(), storage));
        }
      }
}

TEST(muon, pieces_come_where_they_belong) {
  Random random;
  for (const Dtype storage : kFloatingTypes) {
    // Columns [2, 5) of a (4, 7) matrix from element 1 of the part on, and two elements by
    // themselves.
    const MovePieces in{.pieces = {{1, 10, {10, 0, 0}, {2, 3, 7}}, {0, 2, {0, 0, 0}, {26, 0, 0}}},
                        .from_elements = 30,
                        .to_elements = 28,
                        .beside = true,
                        .storage = storage};
    const Values from = rounded(random.normal(30), storage);
    const Array source(storage, {30}, from), whole(storage, {28}, Values(28, 7));
    test::run(in, {.from = source, .to = whole});
    Values expected(28, 7);
    for (int l = 1; l < 11; ++l)
      expected[static_cast<std::size_t>(2 + l / 3 * 7 + l % 3)] =
          from[static_cast<std::size_t>(10 + l)];
    expected[26] = from[0], expected[27] = from[1];
    EXPECT_EQ(whole.values(), expected);
    const MovePieces back{.pieces = {{1, 10, {2, 3, 7}, {10, 0, 0}}},
                          .from_elements = 28,
                          .to_elements = 30,
                          .beside = true,
                          .storage = storage};
    const Array again(storage, {30}, Values(30, 7));
    test::run(back, {.from = whole, .to = again});
    for (int i = 0; i < 30; ++i)
      EXPECT_EQ(again.values()[static_cast<std::size_t>(i)],
                i > 10 && i < 21 ? from[static_cast<std::size_t>(i)] : 7);
  }
}

TEST(muon, pieces_beyond_their_tensors_are_refused) {
  const Array source(Dtype::fp32, {8}), whole(Dtype::fp32, {8});
  MovePieces op{.pieces = {{0, 4, {5, 0, 0}, {0, 0, 0}}},
                .from_elements = 8,
                .to_elements = 8,
                .beside = true,
                .storage = Dtype::fp32};
  EXPECT_THROW(test::run(op, {.from = source, .to = whole}), execution::Error);
  op.pieces = {{0, 4, {0, 0, 0}, {3, 2, 4}}};
  EXPECT_THROW(test::run(op, {.from = source, .to = whole}), execution::Error);
}

}  // namespace
}  // namespace stowage::kernels::test
