// Activations on a GPU against the host reference in fp64 on inputs as rounded to storage.

#include "ctest/kernels/measured.hpp"
#include "ctest/kernels/operator_check.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/activation/sigmoid.hpp"

namespace stowage::kernels::test {
namespace {

struct Sizes {
  std::int64_t rows, columns, valid;
  bool weighted;
};

// One row, none, none valid, rows that are not whole packs, each number of lanes of a row.
constexpr Sizes kSizes[] = {{1, 1, 1, true},        {0, 8, 0, false},       {6, 8, 0, true},
                            {37, 19, 37, true},     {40, 33, 21, false},    {1000, 1024, 777, true},
                            {333, 1025, 300, true}, {129, 2048, 129, true}, {65, 8192, 64, false},
                            {17, 8192, 17, true},   {9, 20000, 9, true}};

// What lies beyond the valid rows must stay as it is: 7 in both runs.
template <class Op>
void check(const Op& op, const Sizes& s, Random& random) {
  Arrays<Op> o = make_arrays(op, random);
  op.each(
      [](const Spec& spec, const Array& array) {
        if (spec.present && spec.access == execution::Access::write)
          set(array, Values(array.size(), 7.0));
      },
      o);
  set(o.x, random.normal(static_cast<std::int64_t>(o.x.size()), 2));
  if (op.weighted) set(o.row_weight, random.uniform(op.rows, 0.1, 2));
  o.valid_rows = int32_array({99, static_cast<std::int32_t>(s.valid), 99});
  check_on_gpu(
      op, o,
      [&](std::string_view name) {
        return name == "drow_weight"
                   ? tolerance(execution::accumulation(op.storage), static_cast<double>(op.columns))
                   : tolerance(op.storage, 4);
      },
      s.rows == 1000 ? 100 : 2);
}

TEST(activation_gpu, matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Activation kind : {Activation::squared_relu, Activation::swiglu})
    for (const Sizes& s : kSizes)
      for (const Dtype storage : kDeviceTypes) {
        SCOPED_TRACE(testing::Message()
                     << s.rows << " x " << s.columns << " kind " << static_cast<int>(kind));
        const ValidRows valid{.counts = 3, .index = 1};
        check(ActivationForward{kind, s.rows, s.columns, storage, s.weighted, valid}, s, random);
        check(ActivationBackward{kind, s.rows, s.columns, storage, s.weighted, valid}, s, random);
      }
}

TEST(activation_gpu, the_largest_magnitude_is_that_of_what_is_stored) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Activation kind : {Activation::squared_relu, Activation::swiglu})
    for (const Sizes& s : kSizes)
      for (const Dtype storage : kDeviceTypes) {
        SCOPED_TRACE(testing::Message() << s.rows << " x " << s.columns);
        const ActivationBackward op{kind, s.rows, s.columns, storage, s.weighted};
        expect_measured(op, make_arrays(op, random), &Arrays<ActivationBackward>::dx,
                        [](const auto& one, const auto& o, const std::vector<Array>& outputs) {
                          return on_gpu(one, o, outputs);
                        });
      }
}

TEST(activation_gpu, sigmoids_match_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kDeviceTypes) {
      SCOPED_TRACE(testing::Message() << s.rows << " x " << s.columns);
      const auto bound = [&](std::string_view) { return tolerance(storage, 4); };
      const auto of_sums = [&](std::string_view) {
        return tolerance(execution::accumulation(storage), 8);
      };
      const auto compare = [&](const auto& op, const auto& tolerance_of) {
        check_on_gpu(op, make_arrays(op, random), tolerance_of, 2);
      };
      compare(SigmoidGateForward{s.rows, s.columns, storage}, bound);
      compare(SigmoidGateBackward{s.rows, s.columns, storage}, bound);
      compare(SigmoidForward{s.rows, storage}, of_sums);
      compare(SigmoidBackward{s.rows, storage}, of_sums);
    }
}

TEST(activation_gpu, without_a_count_all_rows_are_valid) {
  STOWAGE_NEED_GPU();
  Random random;
  const ActivationForward op{
      .kind = Activation::squared_relu, .rows = 9, .columns = 40, .storage = Dtype::fp32};
  const Arrays<ActivationForward> o = make_arrays(op, random);
  const auto results = on_gpu(op, o, {o.y});
  run(op, o);
  EXPECT_EQ(results[0].values(), o.y.values());
}

}  // namespace
}  // namespace stowage::kernels::test
