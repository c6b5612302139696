// The scan's operators on a GPU against their host reference in fp64, on inputs as rounded.

#include <algorithm>
#include <cmath>
#include <map>

#include "ctest/kernels/operator_check.hpp"
#include "ctest/kernels/scan_case.hpp"

namespace stowage::kernels::test {
namespace {

/// Columns of [X | B | C] before those of the operands: whole 16 bytes.
constexpr std::int64_t kBefore = 8;

/// Roundings to storage on the way to a result.
const std::map<std::string_view, double> kRoundings = {
    {"y", 2},        {"dxbc", 3},        {"ddt", 3},         {"da_log", 4},        {"dd", 0},
    {"ddt_bias", 4}, {"final_state", 2}, {"total_decay", 0}, {"dinitial_state", 2}};

/// As a mixer has them: steps in columns at an odd place.
template <class Op>
Arrays<Op> arrays(const Op& op, Random& random) {
  const std::int64_t n = op.tokens, heads = op.shape.heads;
  Arrays<Op> o = make_arrays(op, random, kBefore);
  o.inputs.dt = {embedded(op.storage, n, heads, 3, random.normal(n * heads)), 3, heads};
  set(o.inputs.a_log, random.uniform(heads, -3, 1));
  set(o.inputs.dt_bias, random.uniform(heads, -4, 0));
  if constexpr (requires { o.gradients; }) {
    const Values around(at(n * (heads + 6)), 7.0);
    o.gradients.ddt = {Array(op.storage, {n, heads + 6}, around), 5, heads};
  }
  return o;
}

void compare(const ScanCase& c, Dtype storage, bool tensor_cores, bool ends = false,
             int replays = 2) {
  SCOPED_TRACE(testing::Message() << c.packed.tokens << " tokens, " << execution::name(storage));
  Random random;
  const auto bound = [&](std::string_view name) {
    const double terms = static_cast<double>(c.packed.tokens * c.shape.state);
    const double roundings = kRoundings.at(name);
    const double stored = execution::epsilon(storage) *
                          std::max(tensor_cores ? roundings : 0.0, roundings > 0 ? 1.0 : 0.0);
    return stored + 64 * execution::epsilon(Dtype::fp32) * std::sqrt(terms);
  };
  const auto check = [&](const auto& op, const Tolerances& tolerance, int times) {
    const auto o = arrays(op, random);
    set(o.inputs.seq_idx, {c.packed.document.begin(), c.packed.document.end()});
    check_on_gpu(op, o, tolerance, times, error_of);
  };
  SsdForward forward = c.op<SsdForward>(storage);
  forward.initial_state = forward.final_state = ends;
  check(forward, bound, replays);
  SsdBackward backward = c.op<SsdBackward>(storage);
  backward.initial_state = backward.dfinal_state = backward.dinitial_state = ends;
  check(backward, bound, replays);
  backward.accumulate = true;
  const auto added = [&](std::string_view name) {
    return name == "da_log" || name == "dd" || name == "ddt_bias" ? 6 * 0x1p-8 : bound(name);
  };
  check(backward, added, 1);
}

Packed documents() { return Packed({70, 1, 1, 62, 64, 33, 128, 5}, 21); }

// {H, P, G, N, Q}
TEST(ssd_queue_gpu, simple_kernels_fp32) {
  STOWAGE_NEED_GPU();
  compare({{4, 32, 2, 24, 64}, documents()}, Dtype::fp32, false);
  compare({{3, 5, 1, 7, 4}, Packed({1})}, Dtype::fp32, false);
  compare({{8, 64, 1, 128, 64}, Packed({97})}, Dtype::fp32, false);
  compare({{2, 64, 2, 256, 64}, Packed({40, 9})}, Dtype::fp32, false);
}

TEST(ssd_queue_gpu, simple_kernels_bf16) {
  STOWAGE_NEED_GPU();
  compare({{4, 32, 2, 24, 64}, documents()}, Dtype::bf16, false);
  // heads of 80 columns in groups of no multiple of 64, or of another state; of 48 and 96
  compare({{6, 80, 2, 128, 64}, documents()}, Dtype::bf16, false);
  compare({{4, 80, 1, 64, 64}, documents()}, Dtype::bf16, false);
  compare({{4, 48, 1, 64, 64}, documents()}, Dtype::bf16, false);
  compare({{4, 96, 2, 128, 64}, documents()}, Dtype::bf16, false);
}

TEST(ssd_queue_gpu, tensor_cores_bf16_parameters) {
  STOWAGE_NEED_WGMMA();
  compare({{8, 64, 2, 128, 64}, documents()}, Dtype::bf16, true);
  compare({{16, 64, 1, 128, 64}, Packed({1})}, Dtype::bf16, true);
  compare({{4, 128, 2, 64, 64}, documents()}, Dtype::bf16, true);
  compare({{8, 80, 2, 128, 64}, documents()}, Dtype::bf16, true);
  compare({{4, 80, 1, 128, 64}, Packed({1})}, Dtype::bf16, true);
}

TEST(ssd_queue_gpu, states_at_the_ends) {
  STOWAGE_NEED_GPU();
  for (const auto& packed : {documents(), Packed({97}), Packed({1})}) {
    compare({{4, 32, 2, 24, 64}, packed}, Dtype::fp32, false, true);
    compare({{3, 5, 1, 7, 4}, packed}, Dtype::bf16, false, true);
    compare({{8, 64, 2, 128, 64}, packed}, Dtype::bf16, true, true);
    compare({{4, 128, 2, 64, 64}, packed}, Dtype::bf16, true, true);
    compare({{8, 80, 2, 128, 64}, packed}, Dtype::bf16, true, true);
  }
}

TEST(ssd_queue_gpu, no_tokens) {
  STOWAGE_NEED_GPU();
  const ScanCase c{{4, 64, 2, 128, 64}, Packed({})};
  Random random;
  for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
    const SsdForward forward = c.op<SsdForward>(storage);
    const Arrays<SsdForward> f = arrays(forward, random);
    on_gpu(forward, f, {f.y});
    const SsdBackward op = c.op<SsdBackward>(storage);
    const Arrays<SsdBackward> o = arrays(op, random);
    const auto& g = o.gradients;
    for (const Array& sum : on_gpu(op, o, {g.da_log, g.dd, g.ddt_bias}))
      EXPECT_EQ(sum.values(), Values(4, 0.0));
  }
}

TEST(ssd_queue_gpu, same_bits_in_100_graph_replays) {
  STOWAGE_NEED_GPU();
  compare({{8, 64, 2, 128, 64}, documents()}, Dtype::bf16, true, false, 100);
  compare({{4, 32, 2, 24, 64}, documents()}, Dtype::fp32, false, false, 100);
}

}  // namespace
}  // namespace stowage::kernels::test
