// Quantised tensors and their products on the host.
#include <cmath>

#include "ctest/kernels/operator_arrays.hpp"
#include "execution/error.hpp"
#include "execution/fp8.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/fp8/fp8_product.hpp"
#include "kernels/fp8/quantise.hpp"

namespace stowage::kernels::test {
namespace {

constexpr Dtype kFormats[] = {Dtype::e4m3, Dtype::e5m2};

double largest(Dtype format) { return format == Dtype::e4m3 ? 448 : 57344; }

/// Quantises 16 x 16 values of which the first is `amax`, the others are smaller.
Arrays<Quantise> quantised(Dtype storage, Dtype format, double amax, Random& random) {
  const Quantise op{.rows = 16, .width = 16, .storage = storage, .payload = format};
  Arrays<Quantise> o = make_arrays(op, random);
  Values x = random.uniform(256, -amax, amax);
  x[0] = amax;
  set(o.x, x);
  run(LargestMagnitude{.rows = 16, .width = 16, .storage = storage}, {.x = o.x, .amax = o.amax});
  run(op, o);
  return o;
}

TEST(fp8, largest_magnitude_is_that_of_any_sign_and_place) {
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const std::size_t at : {0U, 17U, 34U}) {
      const LargestMagnitude op{.rows = 5, .width = 7, .storage = storage};
      const Arrays<LargestMagnitude> o = make_arrays(op, random);
      Values x = random.uniform(35, -2, 2);
      x[at] = -3;
      set(o.x, x);
      run(op, o);
      EXPECT_EQ(o.amax.values(), Values{3});
      x[(at + 1) % 35] = NAN;
      set(o.x, x);
      run(op, o);
      EXPECT_TRUE(std::isnan(o.amax.values()[0]));
    }
}

TEST(fp8, columns_join_the_largest_magnitude_of_others) {
  Random random;
  for (const Dtype storage : kFloatingTypes) {
    const JoinLargestMagnitude op{.rows = 5, .width = 7, .storage = storage};
    const Arrays<JoinLargestMagnitude> o = make_arrays(op, random);  // NaN in other columns
    Values x = random.uniform(35, -2, 2);
    x[20] = -3;
    set(o.x, x);
    for (const auto& [before, after] : {std::pair{0.0, 3.0}, {4.0, 4.0}}) {
      set(o.amax, {before});
      run(op, o);
      EXPECT_EQ(o.amax.values(), Values{after});
    }
  }
}

TEST(fp8, the_scale_is_the_least_power_of_two_that_fits) {
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const Dtype format : kFormats) {
      // The limit itself fits; what follows it in bf16 needs the next scale.
      for (const auto& [amax, scale] : {std::pair{largest(format), 1.0},
                                        {largest(format) * 257 / 256, 2.0},
                                        {largest(format) / 1024, 1.0 / 1024},
                                        {largest(format) * 0x1p-9 * 1.0625, 0x1p-8}}) {
        const Arrays<Quantise> o = quantised(storage, format, amax, random);
        const double stored = rounded({amax}, storage)[0];
        EXPECT_EQ(o.scale.values()[0], stored > largest(format) * scale ? 2 * scale : scale)
            << amax;
      }
      EXPECT_TRUE(std::isnan(quantised(storage, format, INFINITY, random).scale.values()[0]));
    }
}

TEST(fp8, payload_and_transpose_are_the_rounded_quotients) {
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const Dtype format : kFormats) {
      const Arrays<Quantise> o = quantised(storage, format, 3.7, random);
      const double scale = o.scale.values()[0];
      Values quotients = o.x.values();
      for (double& value : quotients) value /= scale;
      const Values payload = rounded(quotients, format), turned = o.transposed.values();
      EXPECT_EQ(o.payload.values(), payload);
      for (std::size_t i = 0; i < 16; ++i)
        for (std::size_t j = 0; j < 16; ++j) EXPECT_EQ(turned[16 * j + i], payload[16 * i + j]);
    }
}

TEST(fp8, parts_have_the_scale_of_the_largest) {
  Random random;
  for (const Dtype storage : kFloatingTypes) {
    const Quantise op{
        .rows = 16, .width = 32, .storage = storage, .payload = Dtype::e4m3, .parts = 3};
    const Arrays<Quantise> o = make_arrays(op, random);
    for (const auto& [amaxes, scale] : {std::pair{Values{448, 3, 5}, 1.0},
                                        {{3, 1000, 5}, 4.0},
                                        {{0, 0, 448 * 2}, 2.0},
                                        {{1, NAN, 1}, NAN},
                                        {{1, 1, INFINITY}, NAN}}) {
      set(o.amax, amaxes);
      run(op, o);
      if (std::isnan(scale))
        EXPECT_TRUE(std::isnan(o.scale.values()[0]));
      else
        EXPECT_EQ(o.scale.values(), Values{scale});
    }
  }
}

TEST(fp8, a_payload_is_transposed_as_it_is) {
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const Dtype format : kFormats) {
      const TransposePayload op{.rows = 48, .width = 32, .storage = storage, .payload = format};
      const Arrays<TransposePayload> o = make_arrays(op, random);
      run(op, o);
      const Values payload = o.payload.values(), turned = o.transposed.values();
      for (std::size_t i = 0; i < 48; ++i)
        for (std::size_t j = 0; j < 32; ++j) EXPECT_EQ(turned[48 * j + i], payload[32 * i + j]);
    }
}

TEST(fp8, an_activation_is_rounded_to_storage_before) {
  Random random;
  constexpr std::int64_t kRows = 32, kWidth = 16;
  for (const Dtype storage : kFloatingTypes)
    for (const Activation kind : {Activation::squared_relu, Activation::swiglu}) {
      const ActivationForward act{
          .kind = kind, .rows = kRows, .columns = kWidth, .storage = storage};
      const Arrays<ActivationForward> a = make_arrays(act, random);
      run(act, a);
      LargestMagnitude largest{.rows = kRows, .width = kWidth, .storage = storage};
      Quantise op{.rows = kRows, .width = kWidth, .storage = storage, .payload = Dtype::e4m3};
      Arrays<Quantise> apart = make_arrays(op, random);
      apart.x = a.y;
      run(largest, {.x = a.y, .amax = apart.amax});
      run(op, apart);
      largest.activation = op.activation = kind;
      Arrays<Quantise> together = make_arrays(op, random);
      together.x = a.x;
      run(largest, {.x = a.x, .amax = together.amax});
      EXPECT_EQ(together.amax.values(), apart.amax.values());
      run(op, together);
      EXPECT_EQ(together.payload.values(), apart.payload.values());
      EXPECT_EQ(together.transposed.values(), apart.transposed.values());
      EXPECT_EQ(together.transposed_scale.values(), apart.scale.values());
    }
}

TEST(fp8, zeros_stay_zeros) {
  Random random;
  const Arrays<Quantise> o = quantised(Dtype::fp32, Dtype::e4m3, 0, random);
  EXPECT_EQ(o.payload.values(), Values(256, 0.0));
  EXPECT_TRUE(std::isfinite(o.scale.values()[0]));
}

/// Against sums written out, of what the payloads and scales say.
void check_product(Dtype storage, Dtype a, Dtype b, bool sums, bool accumulate) {
  Random random;
  const Fp8Product op{.m = 32,
                      .n = 16,
                      .k = 48,
                      .storage = storage,
                      .a = a,
                      .b = b,
                      .sums = sums,
                      .accumulate = accumulate};
  Arrays<Fp8Product> o = make_arrays(op, random);
  set(o.a_scale, {0.5});
  set(o.b_scale, {4});
  Values expected = accumulate ? o.c.values() : Values(o.c.size(), 0.0);
  const Values left = o.a.values(), right = o.b.values();
  for (std::size_t i = 0; i < 32; ++i)
    for (std::size_t j = 0; j < 16; ++j)
      for (std::size_t l = 0; l < 48; ++l)
        expected[16 * i + j] += 2 * left[48 * i + l] * right[48 * j + l];
  run(op, o);
  EXPECT_LE(relative_error(o.c.values(), expected), tolerance(op.result(), 48));
}

TEST(fp8, product_is_that_of_the_quantised_values) {
  for (const Dtype storage : kFloatingTypes)
    for (const bool accumulate : {false, true}) {
      check_product(storage, Dtype::e4m3, Dtype::e4m3, false, accumulate);
      check_product(storage, Dtype::e5m2, Dtype::e4m3, true, accumulate);
    }
}

template <class Op>
std::string message(const Op& op) {
  Random random;
  try {
    run(op, make_arrays(op, random));
  } catch (const execution::Error& error) {
    return error.what();
  }
  return {};
}

TEST(fp8, what_hopper_cannot_do_is_refused) {
  EXPECT_NE(
      message(Quantise{.rows = 24, .width = 16, .storage = Dtype::fp32, .payload = Dtype::e4m3})
          .find("x is (24, 16), both must be multiples of 16"),
      std::string::npos);
  EXPECT_NE(
      message(LargestMagnitude{
                  .rows = 16, .width = 8, .storage = Dtype::fp32, .activation = Activation::swiglu})
          .find("act(x) has 8 columns"),
      std::string::npos);
  EXPECT_NE(
      message(Quantise{.rows = 16, .width = 16, .storage = Dtype::fp32, .payload = Dtype::bf16})
          .find("the payload is bf16"),
      std::string::npos);
  EXPECT_NE(message(TransposePayload{
                        .rows = 16, .width = 24, .storage = Dtype::fp32, .payload = Dtype::e4m3})
                .find("the payload is (16, 24), both must be multiples of 16"),
            std::string::npos);
  Fp8Product product{
      .m = 16, .n = 16, .k = 16, .storage = Dtype::fp32, .a = Dtype::e5m2, .b = Dtype::e5m2};
  EXPECT_NE(message(product).find("not e5m2 twice"), std::string::npos);
  product.b = Dtype::e4m3;
  product.k = 8;
  EXPECT_NE(message(product).find("16 x 16 x 8, all must be multiples of 16"), std::string::npos);
}

}  // namespace
}  // namespace stowage::kernels::test
