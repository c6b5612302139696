// Products of 8 bits: offloaded, recomputed and graphed steps have the bits of the plain one, and
// gradients are those of the products that they stand for, but for the rounding. Built twice: on
// the host, and for a GPU (STOWAGE_TEST_CUDA), at sizes that reach the tensor-core kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "matrix.hpp"

#if STOWAGE_TEST_CUDA
#include "ctest/kernels/need_gpu.hpp"
#include "execution/cuda_backend.hpp"
#endif

namespace stowage::ctest {
namespace {

using execution::Dtype;

#if STOWAGE_TEST_CUDA

std::unique_ptr<execution::Backend> make_backend() { return execution::make_cuda_backend(); }

void set_sizes(forecast::TrainerOptions& options) {
  quantise(options);
  enlarge(options, 128);
}

#else

std::unique_ptr<execution::Backend> make_backend() { return execution::make_host_backend(); }

void set_sizes(forecast::TrainerOptions& options) { quantise(options); }

#endif

class fp8 : public testing::Test {
 protected:
#if STOWAGE_TEST_CUDA
  void SetUp() override { STOWAGE_NEED_GPU(); }
#endif
};

TEST_F(fp8, offload_recompute_and_graphs_change_no_bit) {
  // Payloads are scratch: more of what a step needs cannot leave.
  constexpr std::size_t kBudgetPercent = 75;
  Matrix matrix{{.backend = make_backend,
                 .adjust = set_sizes,
                 .budget_percent = kBudgetPercent,
                 .digest = true}};
  const std::vector<Cell> cells = pairwise_cells();
  ASSERT_GE(cells.size(), 8U);
  for (const Cell& cell : cells) matrix.check(cell);
}

TEST_F(fp8, changing_documents_change_no_bit) {
  const auto tokens = [] {
    forecast::TrainerOptions options = tiny_options(every_kind(), Dtype::bf16);
    set_sizes(options);
    return static_cast<std::int32_t>(options.step.tokens);
  }();
  Matrix matrix{{.backend = make_backend,
                 .adjust =
                     [](forecast::TrainerOptions& options) {
                       set_sizes(options);
                       use_gates(options);
                       options.model.delta.key_head_dim = 7;  // in_proj has 64 rows of any decays
                       options.capacities = {4};
                     },
                 .packings = {{{0, 5, tokens}, {0, tokens}}, {{0, 1, 2, tokens - 3}, {0, 16, 17}}},
                 .digest = true}};
  matrix.check({.graphs = "layer", .offload = "all", .recompute = "some", .microbatches = 3});
  matrix.check({.graphs = "step", .offload = "all", .microbatches = 4});
}

using Products = layers::ModelConfig::Products;

Products of_8_bits(Dtype gradients, int first = 0, int last = 0) {
  return {&layers::kProductsOf8Bits, first, last, gradients};
}

/// Gradients of a step, by parameter.
std::map<std::string, std::vector<double>> gradients(const std::string& pattern,
                                                     const Products& products) {
  forecast::TrainerOptions options = tiny_options(pattern, Dtype::bf16);
  set_sizes(options);
  condition_norms(options);
  options.model.products = products;
  options.model.moe.frozen_tokens = options.step.tokens;  // the same experts
  TinyRun run(std::move(options), make_backend());
  run.freeze_routing();
  run.train(1, 0.0);
  std::map<std::string, std::vector<double>> all;
  for (const layers::Parameter& p : run.trainer().plan().model().parameters())
    all[p.name] = run.read(layers::gradient_name(p.name));
  return all;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(a[i] - b[i], 2);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

// By norm e4m3 rounds a factor by 0.03 and e5m2 by 0.06: half of 2^-4 and 2^-3. A gradient has
// passed some ten products of two: 0.06 sqrt(20) = 0.27.
void expect_rounded_gradients(const std::string& pattern) {
  SCOPED_TRACE(pattern);
  const auto exact = gradients(pattern, {});
  const auto wide = gradients(pattern, of_8_bits(Dtype::e5m2));
  const auto fine = gradients(pattern, of_8_bits(Dtype::e4m3));
  std::vector<double> all, all_wide, all_fine;
  for (const auto& [name, gradient] : exact) {
    EXPECT_GT(distance(wide.at(name), gradient), 0.002) << name;
    all.insert(all.end(), gradient.begin(), gradient.end());
    all_wide.insert(all_wide.end(), wide.at(name).begin(), wide.at(name).end());
    all_fine.insert(all_fine.end(), fine.at(name).begin(), fine.at(name).end());
  }
  EXPECT_LT(distance(all_wide, all), 0.4);
  EXPECT_LT(distance(all_fine, all), distance(all_wide, all));
}

TEST_F(fp8, gradients_are_those_of_the_model_but_for_the_rounding) {
  expect_rounded_gradients(without_gated_delta(every_kind() + "M"));
  expect_rounded_gradients(every_kind() + "M");
}

/// Ops of a training program of layers M-M- whose names end so, of each microbatch.
int count_ops(int microbatches, const std::string& ending) {
  forecast::TrainerOptions options = tiny_options("M-M-", Dtype::bf16);
  set_sizes(options);
  options.step.microbatches = microbatches;
  const forecast::TrainerPlan plan(options);
  return static_cast<int>(
      std::ranges::count_if(plan.training()[0]->recorded.program.ops(),
                            [&](const execution::Op& op) { return op.name.ends_with(ending); }));
}

// Each of the four layers has two products. What they take is rounded once, w for the whole step.
TEST_F(fp8, factors_are_rounded_once) {
  for (const int microbatches : {1, 2}) {
    EXPECT_EQ(count_ops(microbatches, "_w_quantise"), 8);
    EXPECT_EQ(count_ops(microbatches, "_x_quantise"), microbatches * 8);
    EXPECT_EQ(count_ops(microbatches, "_dy_quantise"), microbatches * 8);
    // Passes that measure: weights; activations before fc2, columns of the gradient of in_proj's
    // output, and the gradient that the head hands on.
    EXPECT_EQ(count_ops(microbatches, "_amax"), 8 + microbatches * (2 + 2 + 1));
  }
}

/// How often two tensor ranks gather rows in a training step of one layer, in 8 bits and in bf16.
std::pair<int, int> gathers(const std::string& pattern,
                            const std::function<void(forecast::TrainerOptions&)>& adjust = {}) {
  forecast::TrainerOptions options = tiny_options(pattern, Dtype::bf16);
  quantise(options);
  enlarge(options, 64);
  options.model.mamba.heads = 32;  // a rank's rows of in_proj are a multiple of 16
  options.model.delta.value_heads = 32;
  if (adjust) adjust(options);
  options.sharing.ranks = parallel::planned_ranks(parallel::fit_grid(2, 2), 0);
  const forecast::TrainerPlan plan(options);
  std::pair<int, int> found;
  for (const execution::Op& op : plan.training()[0]->recorded.program.ops()) {
    if (!op.communication || op.communication->kind != "all_gather" ||
        op.name.find("layers.0") == std::string::npos)
      continue;
    if (op.communication->dtype == Dtype::e4m3) ++found.first;
    if (op.communication->dtype == Dtype::bf16) ++found.second;
  }
  return found;
}

// Forward's rows, backward's of the gradient, and forward's once more, if products alone take them.
TEST_F(fp8, tensor_ranks_gather_payloads_where_products_alone_take_rows) {
  const std::pair payloads(3, 0), of_gradients(1, 2), values(0, 3);
  for (const char* const pattern : {"M", "*", "-", "G"}) EXPECT_EQ(gathers(pattern), payloads);
  EXPECT_EQ(gathers("*", use_gates), payloads);
  EXPECT_EQ(gathers("G", use_gates), of_gradients) << "decays of channels take values";
  EXPECT_EQ(gathers("E"), values) << "routed experts take values";
  const auto latent = [](forecast::TrainerOptions& options) { options.model.moe.latent = 64; };
  EXPECT_EQ(gathers("E", latent), payloads) << "the shared expert's own: narrow ones go by slots";
  const auto gated = [&](forecast::TrainerOptions& options) {
    latent(options);
    use_gates(options);
  };
  EXPECT_EQ(gathers("E", gated), of_gradients) << "its gate takes values";
}

TEST_F(fp8, first_and_last_layers_stay_as_they_are) {
  const std::string pattern = every_kind() + "M";
  const int layers = static_cast<int>(pattern.size());
  const auto exact = gradients(pattern, {});
  EXPECT_EQ(gradients(pattern, of_8_bits(Dtype::e5m2, 1, layers - 1)), exact);
  EXPECT_EQ(gradients(pattern, of_8_bits(Dtype::e5m2, layers, 0)), exact);
  EXPECT_NE(gradients(pattern, of_8_bits(Dtype::e5m2, 1, layers - 2)), exact);
}

// A precision is a row: this one saves values and rounds them once more in backward, which gives
// the same payloads (docs/develop/add_a_precision.md).
constexpr layers::ProductPrecision kAgain{.name = "fp8_again",
                                          .help = "of 8 bits, rounded again by backward",
                                          .factors = Dtype::e4m3,
                                          .saves_factors = false,
                                          .capability = 89};

TEST_F(fp8, another_precision_is_a_row) {
  const std::string pattern = every_kind() + "M";
  Products again = of_8_bits(Dtype::e5m2);
  again.precision = &kAgain;
  EXPECT_EQ(gradients(pattern, again), gradients(pattern, of_8_bits(Dtype::e5m2)));

  const auto saved_payloads = [](const layers::ProductPrecision& precision) {
    forecast::TrainerOptions options = tiny_options("M-M-", Dtype::bf16);
    set_sizes(options);
    options.model.products.precision = &precision;
    const forecast::TrainerPlan plan(options);
    return std::ranges::count_if(plan.training()[0]->recorded.program.tensors(),
                                 [](const execution::TensorInfo& info) {
                                   return info.lifetime == execution::Lifetime::saved &&
                                          info.buffers[0].dtype == Dtype::e4m3;
                                 });
  };
  EXPECT_EQ(saved_payloads(kAgain), 0);
  EXPECT_EQ(saved_payloads(layers::kProductsOf8Bits), 8);  // two of each layer
}

}  // namespace
}  // namespace stowage::ctest
