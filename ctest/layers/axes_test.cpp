// Ranks that share a model compute what one rank computes that has all of it: losses, norms, every
// gradient, parameters, moments and expert biases, in fp64, on every grid of the axes that layers
// know, and the same bits when they do it again.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "axes.hpp"
#include "run/state/whole_tensors.hpp"
#include "toy_optimizer.hpp"

namespace stowage::ctest {
namespace {

using execution::Dtype;

TEST(axes, every_kind_equals_one_rank) {
  const Axes axes;
  for (Case c : axes.grids())
    for (const std::string& pattern : kind_patterns())
      for (const int microbatches : {1, 3}) {
        if (static_cast<int>(pattern.size()) < c.pipeline) continue;
        c.microbatches = microbatches;
        SCOPED_TRACE(text(c, pattern));
        axes.compare(options_of(pattern, Dtype::fp64), c);
        if (testing::Test::HasFailure()) return;
      }
}

// Of shards, too, with everything on the host, and whatever states an optimizer has.
TEST(axes, another_optimizer_equals_one_rank) {
  const Axes axes;
  for (Case c : axes.grids())
    for (const bool zero : {false, true}) {
      c.zero = zero;
      c.microbatches = 2;
      forecast::TrainerOptions options = options_of("M*-E", Dtype::fp64);
      options.state.optimizer = &kDescent;
      if (zero) options.state.host.names = {"momentum", "gradient", "parameter"};
      SCOPED_TRACE(text(c, "M*-E"));
      axes.compare(options, c);
      if (testing::Test::HasFailure()) return;
      TinyRun tiny(axes.shared(options, c));
      const run::WholeTensors whole(tiny.trainer(), axes.world);  // of checkpoints
      for (const layers::Parameter& p : tiny.trainer().plan().model().whole_parameters())
        EXPECT_EQ(whole.info("momentum/" + p.name).buffers.front().shape, p.shape) << p.name;
    }
}

// Matrices are put together at their owners from every cut: of rows, of columns, of experts, of
// shards, with copies.
TEST(axes, muon_equals_one_rank) {
  using Split = layers::MuonConfig::Split;
  const Axes axes;
  int number = 0;
  for (Case c : axes.grids())
    for (const bool zero : {false, true}) {
      c.zero = zero;
      c.microbatches = c.pipeline > 1 ? 2 : 1;
      forecast::TrainerOptions options = options_of("M*-EG", Dtype::fp64);
      options.state.optimizer = &layers::kMuon;
      options.model.attention.kv_heads = 2;  // fewer than ranks
      constexpr Split kSplits[] = {Split::none, Split::projections, Split::heads};
      options.optimizer.muon.split = kSplits[number++ % 3];
      if (zero) predict_further(options, false);  // with experts in a latent width
      SCOPED_TRACE(text(c, "M*-EG") + fmt::format(" split {}", number % 3));
      axes.compare(options, c);
      if (testing::Test::HasFailure()) return;
    }
}

/// Masters behind a step that has no gradient, from momenta that are the same on all layouts.
std::map<std::string, std::vector<double>> masters_of_given_momenta(
    forecast::TrainerOptions options) {
  TinyRun tiny(std::move(options));
  const forecast::TrainerPlan& plan = tiny.trainer().plan();
  const execution::PersistentLayout& layout = plan.layout();
  std::map<std::string, execution::GlobalIndex> held;
  for (const layers::Parameter& p : plan.model().parameters()) {
    const std::string momentum = "muon_m/" + p.name;
    if (!layout.has(momentum)) continue;
    execution::GlobalIndex index = p.index();
    const execution::Range range = layout.held(momentum);
    index.first = range.begin;
    std::vector<double> values;
    for (std::int64_t i = 0; i < range.end - range.begin; ++i)
      values.push_back(std::sin(0.37 * static_cast<double>(index(i) % 9973) + 1));
    tiny.write(momentum, values);
    held[p.name] = index;
  }
  TinyRun::Batch batch = tiny.make_batch(0, plan.options().step.microbatches);
  std::ranges::fill(batch.targets, -1);
  batch.step_counted = 1;
  tiny.train(batch, 1e-2, 1, plan.capacity_classes() - 1);
  EXPECT_TRUE(tiny.step_ok());
  EXPECT_EQ(tiny.grad_norm(), 0);
  std::map<std::string, std::vector<double>> masters;
  for (const auto& [name, index] : held) {
    const std::vector<double> values = tiny.read("master/" + name);
    std::vector<double>& all = masters[name];  // pairs of an index and a value
    for (std::size_t i = 0; i < values.size(); ++i) {
      all.push_back(static_cast<double>(index(static_cast<std::int64_t>(i))));
      all.push_back(values[i]);
    }
  }
  return masters;
}

// Whoever owns a matrix, and whatever cuts its parts came from.
TEST(axes, updates_of_muon_from_the_same_momenta_have_the_same_bits) {
  const Axes axes;
  if (axes.world.size() != 4) GTEST_SKIP() << "of four ranks";
  forecast::TrainerOptions options = options_of("M*-E", Dtype::bf16);
  options.state.optimizer = &layers::kMuon;
  options.model.moe.aux_coeff = options.model.moe.z_coeff = options.model.z_loss_coeff = 0;
  const auto alone = masters_of_given_momenta(options);
  for (const Case& c : {Case{.zero = true}, Case{.tensor = 4, .zero = true},
                        Case{.tensor = 2, .expert = 2, .zero = true}, Case{.expert = 4},
                        Case{.tensor = 2, .microbatches = 2, .pipeline = 2}}) {
    SCOPED_TRACE(text(c, "M*-E"));
    int matrices = 0;
    for (const auto& [name, values] : masters_of_given_momenta(axes.shared(options, c))) {
      const std::vector<double>& wanted = alone.at(name);
      for (std::size_t i = 0; i < values.size(); i += 2)
        ASSERT_EQ(values[i + 1], wanted[2 * static_cast<std::size_t>(values[i]) + 1])
            << name << "[" << values[i] << "]";
      ++matrices;
    }
    EXPECT_GT(matrices, 0);
  }
}

/// Grids with stages; of eight ranks also those with copies of a pipeline whose ranks share layers.
std::vector<Case> pipeline_grids(const Axes& axes) {
  std::vector<Case> found;
  for (const Case& c : axes.grids())
    if (c.pipeline > 1) found.push_back(c);
  if (axes.world.size() != 8) return found;
  found.push_back({.tensor = 2, .zero = true, .pipeline = 2});
  found.push_back({.expert = 2, .pipeline = 2});
  found.push_back({.expert = 2, .zero = true, .pipeline = 4});
  return found;
}

// Ranks that share layers, in pipelines of every schedule.
TEST(axes, stages_of_any_schedule_equal_one_rank) {
  const Axes axes;
  using Schedule = layers::PipelineSchedule;
  for (Case c : pipeline_grids(axes)) {
    c.microbatches = 4;
    for (const auto& [schedule, virtual_stages] : {std::pair{Schedule::one_forward_one_backward, 1},
                                                   {Schedule::zero_bubble, 1},
                                                   {Schedule::interleaved, 2}}) {
      if (c.pipeline * virtual_stages > 4) continue;  // more stages than layers
      forecast::TrainerOptions options = options_of(every_kind(), Dtype::fp64);
      options.sharing.schedule = schedule;
      options.model.virtual_stages = virtual_stages;
      SCOPED_TRACE(text(c, every_kind()) + fmt::format(", {} stages a rank", virtual_stages));
      axes.compare(options, c);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Grids whose ranks have whole products: others find other largest magnitudes.
TEST(axes, products_of_8_bits_equal_one_rank) {
  const Axes axes;
  for (Case c : axes.grids()) {
    if (c.tensor > 1 || c.context > 1) continue;
    c.microbatches = 3;
    forecast::TrainerOptions options = options_of("M*-E", Dtype::fp64);
    quantise(options);
    SCOPED_TRACE(text(c, "8 bits"));
    axes.compare(options, c);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(axes, variants_equal_one_rank) {
  const Axes axes;
  for (Case c : axes.grids())
    for (const bool zero : {false, true}) {
      c.zero = zero;
      forecast::TrainerOptions options = options_of("M-*E", Dtype::fp64);
      options.model.mlp.activation = kernels::Activation::swiglu;
      options.model.tied_embeddings = true;
      options.model.moe.shared_ffn = 0;
      options.model.moe.sigmoid = false;
      SCOPED_TRACE(text(c, "swiglu, tied, softmax, no shared expert"));
      axes.compare(options, c);
      if (testing::Test::HasFailure()) return;
      options = options_of("*-*", Dtype::fp64);
      options.model.attention.norms = true;
      SCOPED_TRACE("normed heads");
      axes.compare(options, c);
      options = options_of("GE*-", Dtype::fp64);
      use_gates(options);
      SCOPED_TRACE("gated forms");
      axes.compare(options, c);
      options = options_of("ME*-", Dtype::fp64);
      options.model.mamba.form = layers::ModelConfig::Mamba::Form::fused;
      options.model.mamba.conv_width = 3;
      SCOPED_TRACE("fused mixer, a convolution of three taps");
      axes.compare(options, c);
      if (testing::Test::HasFailure()) return;
    }
}

TEST(axes, latent_experts_and_further_tokens_equal_one_rank) {
  const Axes axes;
  for (Case c : axes.grids())
    for (const bool shared : {false, true}) {
      c.zero = shared;
      c.microbatches = shared ? 3 : 1;
      forecast::TrainerOptions options = options_of("M*-E", Dtype::fp64);
      predict_further(options, shared);
      options.model.tied_embeddings = shared;
      SCOPED_TRACE(text(c, "M*-E") + (shared ? ", one block" : ", a block for each depth"));
      axes.compare(options, c);
      if (testing::Test::HasFailure()) return;
    }
}

// Documents end where they do for the next token's head, whichever rank has them.
TEST(axes, further_tokens_of_packed_documents_equal_one_rank) {
  const Axes axes;
  for (Case c : axes.grids()) {
    c.documents = {0, 5, 5, 14};
    forecast::TrainerOptions options = options_of("M*-E", Dtype::fp64);
    predict_further(options, false, "ME");
    SCOPED_TRACE(text(c, "M*-E"));
    axes.compare(options, c);
    if (testing::Test::HasFailure()) return;
  }
}

/// Grids of which some ranks share layers, with and without shards of states, and one of eight.
std::vector<Case> tensor_grids(const Axes& axes) {
  std::vector<Case> found;
  for (const Case& c : axes.grids())
    if (c.tensor > 1) found.push_back(c);
  if (axes.world.size() == 8) found.push_back({.tensor = 8});
  const std::vector<Case> plain = found;
  for (Case c : plain) {
    c.zero = true;
    found.push_back(c);
  }
  return found;
}

/// Sizes that divide among eight ranks, but for key heads and groups.
forecast::TrainerOptions options_of_eight(const std::string& pattern) {
  forecast::TrainerOptions options = options_of(pattern, Dtype::fp64);
  options.model.attention.heads = 8;
  options.model.mamba.heads = 8;
  options.model.delta.value_heads = 8;
  options.model.mlp.ffn = 16;
  return options;
}

// Fewer key and value heads than tensor ranks: their rows of the weight are on several, each of
// which has a summand of the gradient.
TEST(axes, key_heads_of_several_tensor_ranks_equal_one_rank) {
  const Axes axes;
  for (Case c : tensor_grids(axes))
    for (const int kv_heads : {1, 2, 4})
      for (const bool norms : {false, true}) {
        forecast::TrainerOptions options = options_of_eight(norms ? "*" : "*-*");
        options.model.attention.kv_heads = kv_heads;
        options.model.attention.norms = options.model.attention.output_gate = norms;
        c.microbatches = norms ? 1 : 3;
        if (norms && (c.pipeline > 1 || c.zero)) continue;
        SCOPED_TRACE(text(c, "*-*") + fmt::format(", {} key heads", kv_heads));
        axes.compare(options, c);
        if (testing::Test::HasFailure()) return;
      }
}

// Packed documents have a tail, which routers count by token.
TEST(axes, rows_of_packed_documents_equal_one_rank) {
  const Axes axes;
  for (Case c : tensor_grids(axes))
    for (const int microbatches : {1, 3}) {
      if (c.zero && microbatches == 3) continue;
      c.documents = {0, 5, 5, 14};
      c.microbatches = microbatches;
      for (const std::string& pattern : {every_kind(), std::string("E-")}) {
        if (static_cast<int>(pattern.size()) < c.pipeline) continue;
        SCOPED_TRACE(text(c, pattern) + fmt::format(", {} microbatches", microbatches));
        axes.compare(options_of_eight(pattern), c);
        if (testing::Test::HasFailure()) return;
      }
    }
}

// Two ranks hand their rows out in halves where they have an even number, else whole.
TEST(axes, odd_rows_equal_one_rank) {
  const Axes axes;
  for (Case c : tensor_grids(axes)) {
    if (c.tensor != 2 || c.context > 1) continue;
    forecast::TrainerOptions options = options_of(every_kind(), Dtype::fp64);
    options.step.tokens = options.step.sequence = 26;
    c.documents = {0, 9, 25};
    SCOPED_TRACE(text(c, every_kind()));
    axes.compare(options, c);
    if (testing::Test::HasFailure()) return;
  }
}

// Fewer groups than tensor ranks: their rows of B and C are on several, whose norm has one mean.
TEST(axes, groups_of_several_tensor_ranks_equal_one_rank) {
  using Form = layers::ModelConfig::Mamba::Form;
  const Axes axes;
  for (Case c : tensor_grids(axes))
    for (const int groups : {1, 2, 8})
      for (const Form form : {Form::separate, Form::fused_forward, Form::fused}) {
        if (form != Form::separate && (groups > 1 || c.zero)) continue;
        if (groups == 8 && c.zero) continue;
        forecast::TrainerOptions options = options_of_eight("M-M");
        options.model.mamba.groups = groups;
        options.model.mamba.form = form;
        c.microbatches = form == Form::separate ? 3 : 1;
        SCOPED_TRACE(text(c, "M-M") + fmt::format(", {} groups, form {}", groups, int(form)));
        axes.compare(options, c);
        if (testing::Test::HasFailure()) return;
      }
}

TEST(axes, key_heads_that_neither_divide_are_refused) {
  const Axes axes;
  for (const Case& c : tensor_grids(axes)) {
    forecast::TrainerOptions options = axes.shared(options_of_eight("*-"), c);
    options.model.attention.heads = 24;
    options.model.attention.kv_heads = 3;
    try {
      const forecast::TrainerPlan plan(options);
      FAIL() << "three key heads were shared by " << c.tensor << " ranks";
    } catch (const execution::Error& error) {
      EXPECT_EQ(error.exit(), execution::Exit::usage);
      EXPECT_NE(std::string(error.what()).find("model.num_query_groups = 3"), std::string::npos);
    }
  }
}

// Rows that go to the ranks of their experts alone, those of a tail to none.
TEST(axes, experts_by_slots_equal_one_rank) {
  const Axes axes;
  for (Case c : axes.grids())
    for (const int microbatches : {1, 3}) {
      if (c.tensor * c.expert == 1) continue;
      c.microbatches = microbatches;
      c.zero = microbatches > 1;
      forecast::TrainerOptions options = options_of("M*E-E", Dtype::fp64);
      options.model.moe.exchange = layers::ModelConfig::Moe::Exchange::slots;
      options.capacity_factors = {1.25};
      SCOPED_TRACE(text(c, "by slots"));
      axes.compare(options, c);
      if (testing::Test::HasFailure()) return;
    }
}

// Of eight experts: all alike, the first most (Zipf), those of one rank alone, every other one.
TEST(axes, any_routing_equals_one_rank) {
  const Axes axes;
  const auto zipf = [](std::int32_t t, std::int32_t r) {
    return (std::countr_zero(static_cast<unsigned>(t + 1)) + r) % 8;
  };
  std::pair<TinyRun::Routing, int> routings[] = {
      {[](std::int32_t t, std::int32_t r) { return (t * 3 + r) % 8; }, 0},
      {zipf, kSteps},
      {[](std::int32_t, std::int32_t r) { return r; }, kSteps},
      {[](std::int32_t t, std::int32_t r) { return (t + r) * 2 % 8; }, 0}};
  for (Case c : axes.grids()) {
    if (c.expert == 1 || c.context * c.pipeline > 1) continue;
    // With an expert for each rank, half of these have twice the balanced rows.
    routings[3].second = c.tensor * c.expert == 8 ? kSteps : 0;
    using Exchange = layers::ModelConfig::Moe::Exchange;
    for (const Exchange exchange : {Exchange::gather, Exchange::slots})
      for (const auto& [routing, reruns] : routings) {
        c.routing = routing;
        forecast::TrainerOptions options = options_of("-EE", Dtype::fp64);
        options.model.moe.frozen_tokens = options.step.tokens;
        options.model.moe.exchange = exchange;
        options.capacity_factors = {1.25};
        SCOPED_TRACE(text(c, "frozen routing") + fmt::format(", exchange {}", int(exchange)));
        EXPECT_EQ(axes.compare(options, c), reruns);
        if (testing::Test::HasFailure()) return;
      }
  }
}

// Experts that are drawn: each token's are the same wherever its row is.
TEST(axes, forced_loads_equal_one_rank) {
  const Axes axes;
  for (Case c : axes.grids())
    for (const auto load : {kernels::ForcedLoad::balanced, kernels::ForcedLoad::zipf}) {
      c.microbatches = load == kernels::ForcedLoad::zipf ? 3 : 1;
      forecast::TrainerOptions options = options_of("E-E", Dtype::fp64);
      options.model.moe.forced_load = load;
      options.capacity_factors = {1.25};
      SCOPED_TRACE(text(c, "E-E") + fmt::format(", forced load {}", int(load)));
      axes.compare(options, c);
      if (testing::Test::HasFailure()) return;
    }
}

TEST(axes, repeat_to_the_bit) {
  const Axes axes;
  for (Case c : axes.grids()) {
    using Exchange = layers::ModelConfig::Attention::Exchange;
    for (const auto& [exchange, zigzag] : {std::pair{exchange_of_heads(c), false},
                                           {Exchange::keys, false},
                                           {Exchange::keys, true}}) {
      if (c.context == 1 && exchange == Exchange::keys) continue;
      forecast::TrainerOptions given = options_of(every_kind(), Dtype::bf16);
      given.model.attention.exchange = exchange;
      if (zigzag) make_zigzag(given, c.context);
      const forecast::TrainerOptions options = axes.shared(given, c);
      const Outcome once = run(options, Axes::part_of(options.sharing.ranks), c);
      const forecast::TrainerOptions again = axes.shared(given, c);
      const Outcome twice = run(again, Axes::part_of(again.sharing.ranks), c);
      EXPECT_EQ(once.losses, twice.losses);
      EXPECT_EQ(once.norms, twice.norms);
      EXPECT_EQ(once.state, twice.state);
    }
  }
}

}  // namespace
}  // namespace stowage::ctest
