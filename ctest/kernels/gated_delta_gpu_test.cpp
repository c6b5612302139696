// The gated delta rule's operators on a GPU against their host reference in fp64, on inputs as
// rounded.

#include <cmath>
#include <map>
#include <tuple>

#include "ctest/kernels/gated_delta_case.hpp"
#include "ctest/kernels/operator_check.hpp"
#include "kernels/gated_delta/gated_head_norm.hpp"

namespace stowage::kernels::test {
namespace {

/// Columns before those of the operands: whole 16 bytes, and not.
constexpr std::int64_t kBefore[] = {8, 3};

/// Roundings of 2^-9 on the way to a result of bf16 storage, beside that to storage.
const std::map<std::string_view, double> kRoundings = {
    {"y", 2},           {"dqkv", 4},   {"dba", 4},
    {"da", 4},          {"da_log", 4}, {"ddt_bias", 4},
    {"final_state", 2}, {"to", 2},     {"dinitial_state", 4}};

double error_of(const Values& actual, const Values& expected) {
  return std::min(relative_error(actual, expected), rms_difference(actual, expected));
}

/// Calls check(op, its arrays) for each operator of a case.
template <class Check>
void each_operator(const DeltaCase& c, Dtype storage, bool ends, const Check& check) {
  Random random;
  for (const std::int64_t before : kBefore) {
    SCOPED_TRACE(testing::Message() << c.packed.tokens << " tokens, " << execution::name(storage)
                                    << ", " << before << " columns before");
    const auto with_arrays = [&](const auto& op) {
      const auto o = make_arrays(op, random, before);
      set(o.inputs.a_log, random.uniform(c.shape.value_heads, -3, 1));
      set(o.inputs.seq_idx, {c.packed.document.begin(), c.packed.document.end()});
      check(op, o);
    };
    auto forward = c.op<GatedDeltaForward>(storage);
    forward.initial_state = forward.final_state = ends;
    with_arrays(forward);
    auto backward = c.op<GatedDeltaBackward>(storage);
    backward.initial_state = backward.dfinal_state = backward.dinitial_state = ends;
    with_arrays(backward);
    backward.accumulate = true;
    with_arrays(backward);
    with_arrays(c.op<GatedDeltaSegment<false>>(storage));
    with_arrays(c.op<GatedDeltaSegment<true>>(storage));
  }
}

void compare(const DeltaCase& c, Dtype storage, bool ends) {
  const auto bound = [&](std::string_view name) {
    const double terms = static_cast<double>(c.packed.tokens * c.shape.key_dim);
    const double roundings = storage == Dtype::bf16 ? kRoundings.at(name) : 0;
    return execution::epsilon(storage) * (1 + roundings) +
           64 * execution::epsilon(Dtype::fp32) * std::sqrt(terms);
  };
  each_operator(c, storage, ends,
                [&](const auto& op, const auto& o) { check_on_gpu(op, o, bound, 2, error_of); });
}

/// Without the host, whose fp64 other tests compare with.
void expect_same_bits(const DeltaCase& c, Dtype storage, bool ends, int replays) {
  each_operator(c, storage, ends,
                [&](const auto& op, const auto& o) { expect_same_bits(op, o, replays); });
}

Packed documents() { return Packed({70, 1, 1, 62, 64, 33, 128, 5}, 21); }

TEST(gated_delta_gpu, fp32) {
  STOWAGE_NEED_GPU();
  for (const bool ends : {false, true}) {
    compare({{2, 4, 24, 20}, documents()}, Dtype::fp32, ends);
    compare({{3, 3, 5, 7}, Packed({1})}, Dtype::fp32, ends);
    compare({{1, 2, 128, 128}, Packed({97})}, Dtype::fp32, ends);
  }
}

TEST(gated_delta_gpu, bf16) {
  STOWAGE_NEED_GPU();
  for (const bool ends : {false, true}) {
    compare({{2, 4, 128, 128}, documents()}, Dtype::bf16, ends);
    compare({{2, 2, 64, 32}, documents()}, Dtype::bf16, ends);
    compare({{1, 3, 24, 20}, Packed({97})}, Dtype::bf16, ends);
    compare({{3, 3, 5, 7}, Packed({1})}, Dtype::bf16, ends);
  }
}

// Each column of a head of q and k has a decay of its own.
TEST(gated_delta_gpu, decays_of_channels_in_fp32) {
  STOWAGE_NEED_GPU();
  for (const bool ends : {false, true}) {
    compare({{2, 4, 24, 20, true}, documents()}, Dtype::fp32, ends);
    compare({{3, 3, 5, 7, true}, Packed({1})}, Dtype::fp32, ends);
    compare({{1, 1, 128, 128, true}, Packed({97})}, Dtype::fp32, ends);
  }
}
TEST(gated_delta_gpu, decays_of_channels_in_bf16) {
  STOWAGE_NEED_GPU();
  for (const bool ends : {false, true}) {
    compare({{2, 2, 128, 128, true}, documents()}, Dtype::bf16, ends);
    compare({{1, 3, 64, 32, true}, Packed({97})}, Dtype::bf16, ends);
  }
}

// One token, a head of v for each of q and k, and more of them than a block makes gates of at once.
TEST(gated_delta_gpu, warp_group_products) {
  STOWAGE_NEED_GPU();
  for (const bool ends : {false, true}) {
    compare({{2, 2, 128, 128}, Packed({1})}, Dtype::bf16, ends);
    compare({{1, 9, 128, 128}, Packed({64, 33})}, Dtype::bf16, ends);
  }
}

TEST(gated_delta_gpu, what_enters_a_segment) {
  STOWAGE_NEED_GPU();
  Random random;
  const auto check = [&]<bool kAdjoint>() {
    for (const std::int64_t segment : {0, 1, 3}) {
      const GatedDeltaEnter<kAdjoint> op{{2, 4, 24, 20}, 40, 4, segment, Dtype::bf16};
      const auto o = make_arrays(op, random);
      const Packed packed({13, 27});
      set(o.seq_idx, {packed.document.begin(), packed.document.end()});
      check_on_gpu(
          op, o, [](std::string_view) { return 1e-5; }, 2, error_of);
    }
  };
  check.operator()<false>();
  check.operator()<true>();
}

TEST(gated_delta_gpu, gated_norm_of_heads) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : {Dtype::fp32, Dtype::bf16})
    for (const auto& [tokens, heads, head_dim] :
         {std::tuple{1, 1, 1}, {300, 3, 20}, {1000, 4, 128}}) {
      const double terms = static_cast<double>(tokens) * heads;
      const auto bound = [&, rows = terms](std::string_view name) {
        return tolerance(name == "dw" ? Dtype::fp32 : storage, rows, 64);
      };
      // One column's gradient is what 1 - x^2 / (x^2 + epsilon) leaves: nothing but rounding where
      // epsilon is small.
      const double epsilon = head_dim == 1 ? 1 : 1e-5;
      const GatedHeadNormForward forward{tokens, heads, head_dim, storage, epsilon};
      check_on_gpu(forward, make_arrays(forward, random), bound);
      for (const bool accumulate : {false, true}) {
        const GatedHeadNormBackward op{tokens, heads, head_dim, storage, epsilon, accumulate};
        check_on_gpu(op, make_arrays(op, random), bound);
      }
    }
}

TEST(gated_delta_gpu, no_tokens) {
  STOWAGE_NEED_GPU();
  const DeltaCase c{{2, 4, 24, 20}, Packed({})};
  Random random;
  for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
    const auto op = c.op<GatedDeltaBackward>(storage);
    const auto o = make_arrays(op, random);
    for (const Array& sum : on_gpu(op, o, {o.gradients.da_log, o.gradients.ddt_bias}))
      EXPECT_EQ(sum.values(), Values(4, 0.0));
  }
}

TEST(gated_delta_gpu, same_bits_in_100_graph_replays) {
  STOWAGE_NEED_GPU();
  expect_same_bits({{2, 4, 128, 128}, documents()}, Dtype::bf16, true, 100);
  expect_same_bits({{2, 4, 24, 20}, documents()}, Dtype::fp32, false, 100);
  expect_same_bits({{2, 2, 128, 128, true}, documents()}, Dtype::bf16, true, 100);
}

}  // namespace
}  // namespace stowage::kernels::test
