// Quantised tensors and their products on a GPU: payloads, scales and magnitudes have the bits of
// the host; products are within the 14 bits that Hopper adds up in.
#include <cmath>

#include "ctest/kernels/operator_check.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/fp8/fp8_product.hpp"
#include "kernels/fp8/quantise.hpp"

namespace stowage::kernels::test {
namespace {

double exact(std::string_view) { return 0; }

TEST(fp8_gpu, largest_magnitude_has_the_bits_of_the_host) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : kDeviceTypes)
    for (const auto& [rows, width] : {std::pair{1, 1}, {3, 5}, {16, 1024}, {129, 2049}}) {
      const LargestMagnitude op{.rows = rows, .width = width, .storage = storage};
      Arrays<LargestMagnitude> o = make_arrays(op, random);
      check_on_gpu(op, o, exact);
      Values x = o.x.values();  // the last element, which is beyond whole packs
      x.back() = -100;
      set(o.x, x);
      EXPECT_EQ(on_gpu(op, o, {o.amax})[0].values(), Values{100});
      x[x.size() / 2] = NAN;
      set(o.x, x);
      EXPECT_TRUE(std::isnan(on_gpu(op, o, {o.amax})[0].values()[0]));
    }
}

TEST(fp8_gpu, joined_magnitudes_have_the_bits_of_the_host) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : kDeviceTypes)
    for (const auto& [rows, width, before] :
         {std::tuple{1, 1, 3}, {5, 7, 3}, {16, 1024, 8}, {700, 6208, 4096}, {129, 2049, 1}}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << width);
      const JoinLargestMagnitude op{.rows = rows, .width = width, .storage = storage};
      const Arrays<JoinLargestMagnitude> o = make_arrays(op, random, before);
      for (const double amax : {0.0, 100.0}) {
        set(o.amax, {amax});
        check_on_gpu(op, o, exact);
      }
    }
}

TEST(fp8_gpu, payloads_have_the_bits_of_the_host) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : kDeviceTypes)
    for (const Dtype format : {Dtype::e4m3, Dtype::e5m2})
      for (const auto& [rows, width] :
           {std::pair{16, 16}, {128, 128}, {144, 272}, {1008, 48}, {48, 10304}})
        for (const double amax : {5.0, 3.0, 1e-30, 0.0}) {
          SCOPED_TRACE(testing::Message() << rows << " x " << width << ", amax " << amax);
          const Quantise op{.rows = rows, .width = width, .storage = storage, .payload = format};
          Arrays<Quantise> o = make_arrays(op, random);
          set(o.x, random.normal(rows * width, amax / 6));
          set(o.amax, {amax});
          check_on_gpu(op, o, exact);
        }
}

TEST(fp8_gpu, either_payload_can_be_left_out) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const bool plain : {false, true}) {
    const Quantise op{.rows = 256,
                      .width = 144,
                      .storage = Dtype::bf16,
                      .payload = Dtype::e4m3,
                      .plain = plain,
                      .transposed = !plain};
    Arrays<Quantise> o = make_arrays(op, random);
    set(o.amax, {6});
    check_on_gpu(op, o, exact);
  }
}

TEST(fp8_gpu, parts_have_the_scale_of_the_largest) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : kDeviceTypes) {
    const Quantise op{.rows = 144,
                      .width = 272,
                      .storage = storage,
                      .payload = Dtype::e4m3,
                      .transposed = false,
                      .parts = 4};
    const Arrays<Quantise> o = make_arrays(op, random);
    for (const Values& amaxes : {Values{3, 5, 1000, 5}, {6, 0, 0, 0}, {0, 0, 0, 1e-30}}) {
      set(o.amax, amaxes);
      check_on_gpu(op, o, exact);
    }
    set(o.amax, {1, 1, 1, NAN});
    EXPECT_TRUE(std::isnan(on_gpu(op, o, {o.scale})[0].values()[0]));
  }
}

TEST(fp8_gpu, a_payload_is_transposed_as_it_is) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype format : {Dtype::e4m3, Dtype::e5m2})
    for (const auto& [rows, width] :
         {std::pair{16, 16}, {128, 128}, {144, 272}, {1008, 48}, {48, 10304}}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << width);
      const TransposePayload op{
          .rows = rows, .width = width, .storage = Dtype::bf16, .payload = format};
      check_on_gpu(op, make_arrays(op, random), exact);
    }
}

TEST(fp8_gpu, an_activation_is_rounded_to_storage_before) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : kDeviceTypes)
    for (const Activation kind : {Activation::squared_relu, Activation::swiglu})
      for (const auto& [rows, width] : {std::pair{16, 16}, {144, 272}, {1024, 2048}}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << width);
        const ActivationForward act{
            .kind = kind, .rows = rows, .columns = width, .storage = storage};
        Arrays<ActivationForward> a = make_arrays(act, random);
        a.y = on_gpu(act, a, {a.y})[0];
        LargestMagnitude largest{.rows = rows, .width = width, .storage = storage};
        Quantise op{.rows = rows, .width = width, .storage = storage, .payload = Dtype::e4m3};
        Arrays<Quantise> apart = make_arrays(op, random);
        apart.x = a.y;
        apart.amax = on_gpu(largest, {.x = a.y, .amax = apart.amax}, {apart.amax})[0];
        largest.activation = op.activation = kind;
        Arrays<Quantise> together = make_arrays(op, random);
        together.x = a.x;
        together.amax = on_gpu(largest, {.x = a.x, .amax = together.amax}, {together.amax})[0];
        EXPECT_EQ(together.amax.values(), apart.amax.values());
        const auto expected = on_gpu(
            Quantise{.rows = rows, .width = width, .storage = storage, .payload = Dtype::e4m3},
            apart, {apart.payload, apart.transposed, apart.scale});
        const auto found = on_gpu(
            op, together, {together.payload, together.transposed, together.transposed_scale});
        for (std::size_t i = 0; i < found.size(); ++i)
          EXPECT_EQ(found[i].values(), expected[i].values()) << i;
      }
}

void check_product(std::int64_t m, std::int64_t n, std::int64_t k, Dtype a, bool sums,
                   bool accumulate, bool fast, Random& random) {
  SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << (fast ? " fast" : ""));
  const Fp8Product op{.m = m,
                      .n = n,
                      .k = k,
                      .storage = Dtype::bf16,
                      .a = a,
                      .b = Dtype::e4m3,
                      .sums = sums,
                      .accumulate = accumulate,
                      .fast = fast};
  Arrays<Fp8Product> o = make_arrays(op, random);
  set(o.a_scale, {0.5});
  set(o.b_scale, {0.25});
  const double cut = 0x1p-13 * std::sqrt(static_cast<double>(fast ? k : 128) / 32);
  check_on_gpu(op, o, [&](std::string_view) {
    return tolerance(op.result(), static_cast<double>(k)) + cut;
  });
}

TEST(fp8_gpu, products_are_those_of_the_quantised_values) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const auto& [m, n, k] : {std::tuple{16, 16, 16}, {256, 512, 2048}, {1040, 48, 272}})
    for (const bool fast : {false, true})
      for (const bool accumulate : {false, true}) {
        check_product(m, n, k, Dtype::e4m3, false, accumulate, fast, random);
        check_product(m, n, k, Dtype::e5m2, true, accumulate, fast, random);
      }
}

}  // namespace
}  // namespace stowage::kernels::test
