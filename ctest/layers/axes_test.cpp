// Ranks that share a model compute what one rank computes that has all of it: losses, norms, every
// gradient, parameters, moments and expert biases, in fp64, on every grid of the axes that layers
// know, and the same bits when they do it again.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>

#include "parallel/connect.hpp"
#include "parallel/host_transport.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using execution::Dtype;

constexpr int kSteps = 2;
constexpr double kTolerance = 1e-10;

bool integers(const execution::TensorInfo& info) {
  const Dtype dtype = info.buffers[0].dtype;
  return dtype == Dtype::int32 || dtype == Dtype::int64;
}

struct Outcome {
  int reruns = 0;  ///< of steps without room for all rows of experts
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<double>> state;  ///< what a rank has
};

/// Sizes that divide among up to four ranks.
layers::TrainerOptions options_of(const std::string& pattern, Dtype dtype) {
  layers::TrainerOptions options = tiny_options(pattern, dtype);
  layers::ModelConfig& model = options.model;
  model.vocabulary = 16;
  model.attention.kv_heads = 4;
  model.mamba.groups = 4;
  model.mlp.ffn = 12;
  model.moe = {.experts = 8, .topk = 3, .ffn = 7, .shared_ffn = 8, .scaling = 1.5};
  model.moe.aux_coeff = 0.02;
  model.moe.z_coeff = 0.01;
  options.step.tokens = options.step.sequence = 24;
  options.evaluation_microbatches = 1;
  return options;
}

/// The parameter that a persistent tensor belongs to, or none.
const layers::Parameter* parameter_of(const std::vector<layers::Parameter>& all,
                                      const std::string& tensor) {
  for (const layers::Parameter& p : all)
    for (const std::string& name :
         {p.name, layers::gradient_name(p.name), layers::master_name(p.name),
          layers::first_moment_name(p.name), layers::second_moment_name(p.name)})
      if (name == tensor) return &p;
  return nullptr;
}

void expect_near(double value, double wanted, const std::string& what) {
  EXPECT_NEAR(value, wanted, kTolerance * std::max(1.0, std::abs(wanted))) << what;
}

struct Case {
  int tensor = 1, expert = 1;
  bool zero = false;
  int microbatches = 1;
  int context = 1;
  int pipeline = 1;
  /// Of each microbatch; none: those of a TinyRun, which cross ranks, end at one's border, and have
  /// one token.
  std::vector<std::int32_t> documents = {};
  /// Of each token; none: by the router.
  TinyRun::Routing routing = {};
};

Outcome run(layers::TrainerOptions options, TinyRun::Part part, const Case& c) {
  TinyRun tiny(std::move(options));
  if (!c.documents.empty()) tiny.set_documents(c.documents);
  if (c.routing) tiny.freeze_routing(c.routing);
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    outcome.reruns += tiny.train_with_room(step, 1e-2, part);
    outcome.losses.push_back(tiny.loss()[0]);
    outcome.norms.push_back(tiny.grad_norm());
  }
  const execution::PersistentLayout& layout = tiny.trainer().plan().layout();
  for (const execution::Bucket& bucket : layout.buckets())
    for (const std::string& name : bucket.tensors)
      if (layout.has(name) && !integers(layout.info(name))) outcome.state[name] = tiny.read(name);
  return outcome;
}

class Axes {
 public:
  const parallel::Communicator world = parallel::Communicator::world();

  layers::TrainerOptions shared(layers::TrainerOptions options, const Case& c) const {
    const parallel::GridShape grid =
        parallel::fit_grid(world.size(), c.tensor, c.context, c.expert, c.pipeline);
    options.sharing.ranks = parallel::connect(world, grid, parallel::make_host_transport);
    options.sharing.zero = c.zero;
    options.step.microbatches = c.microbatches;
    options.model.moe.frozen_tokens /= c.tensor;
    return options;
  }

  static TinyRun::Part part_of(const parallel::Ranks& ranks) {
    const parallel::SequencePart part = ranks.sequences();
    return {part.index, part.parts};
  }

  /// Compares a run of all ranks with one of a rank alone. @return its reruns
  int compare(const layers::TrainerOptions& given, const Case& c) const {
    const layers::TrainerOptions options = shared(given, c);
    const parallel::Ranks& ranks = options.sharing.ranks;
    const Outcome ours = run(options, part_of(ranks), c);
    layers::TrainerOptions alone = given;
    alone.step.microbatches = c.microbatches * ranks.sequences().parts;
    alone.model.virtual_stages = 1;
    alone.sharing.schedule = layers::PipelineSchedule::one_forward_one_backward;
    const Outcome wanted = run(alone, {0, 1}, c);
    for (int step = 0; step < kSteps; ++step) {
      const auto at = static_cast<std::size_t>(step);
      expect_near(ours.losses[at], wanted.losses[at], fmt::format("loss of step {}", step));
      expect_near(ours.norms[at], wanted.norms[at], fmt::format("norm of step {}", step));
    }
    const layers::TrainerPlan plan(options);
    const std::vector<layers::Parameter> parameters = plan.model().parameters();
    for (const auto& [name, values] : ours.state) {
      const layers::Parameter* p = parameter_of(parameters, name);
      execution::GlobalIndex index = p != nullptr ? p->index() : execution::GlobalIndex{};
      const execution::Lifetime lifetime = plan.layout().whole(name).lifetime;
      // With shards, gradients are whole and parameters are new in this rank's shard alone.
      execution::Range range = plan.layout().held(name);
      index.first = range.begin;
      std::int64_t begin = 0, end = static_cast<std::int64_t>(values.size());
      if (c.zero && p != nullptr && lifetime != execution::Lifetime::optimizer_state) {
        const int shard = options.sharing.updated(p->group).held;
        if (shard >= 0) range = plan.layout().held(name, shard);
        begin = range.begin;
        end = range.end;
        index.first = 0;
      }
      const std::vector<double>& whole = wanted.state.at(name);
      for (std::int64_t i = begin; i < end; ++i)
        expect_near(values[i], whole[index(i)], fmt::format("{}[{}]", name, i));
      if (testing::Test::HasFailure()) break;
    }
    return ours.reruns;
  }

  /// Grids of these ranks.
  std::vector<Case> grids() const {
    switch (world.size()) {
      case 2:
        return {{2, 1}, {1, 2}, {.context = 2}};
      case 4:
        return {{4, 1},
                {2, 2},
                {2, 1},
                {1, 4},
                {1, 2},
                {.context = 4},
                {.context = 2},
                {.tensor = 2, .context = 2},
                {.expert = 2, .context = 2},
                {.tensor = 2, .pipeline = 2},
                {.expert = 2, .pipeline = 2},
                {.context = 2, .pipeline = 2}};
      case 8:
        return {{2, 2},
                {4, 2},
                {1, 8},
                {.context = 8},
                {.tensor = 2, .context = 4},
                {.tensor = 2, .expert = 2, .context = 2},
                {.tensor = 2, .context = 2, .pipeline = 2}};
      default:
        return {{1, 1}};
    }
  }
};

/// Of heads, where the four of options_of() divide.
layers::ModelConfig::Attention::Exchange exchange_of_heads(const Case& c) {
  using Exchange = layers::ModelConfig::Attention::Exchange;
  return 4 % (c.tensor * c.context) == 0 ? Exchange::heads : Exchange::automatic;
}

std::string text(const Case& c, const std::string& pattern) {
  return fmt::format("{} tensor {} context {} expert {} pipeline {} zero {} microbatches {}",
                     pattern, c.tensor, c.context, c.expert, c.pipeline, c.zero, c.microbatches);
}

TEST(axes, every_letter_equals_one_rank) {
  const Axes axes;
  for (Case c : axes.grids())
    for (const char* pattern : {"", "-", "*", "M", "E", "M*-E"})
      for (const int microbatches : {1, 3}) {
        if (static_cast<int>(std::string(pattern).size()) < c.pipeline) continue;
        if (std::string(pattern).empty()) continue;
        c.microbatches = microbatches;
        SCOPED_TRACE(text(c, pattern));
        axes.compare(options_of(pattern, Dtype::fp64), c);
        if (testing::Test::HasFailure()) return;
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
      layers::TrainerOptions options = options_of("M*-E", Dtype::fp64);
      options.sharing.schedule = schedule;
      options.model.virtual_stages = virtual_stages;
      SCOPED_TRACE(text(c, "M*-E") + fmt::format(", {} stages a rank", virtual_stages));
      axes.compare(options, c);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(axes, variants_equal_one_rank) {
  const Axes axes;
  for (Case c : axes.grids())
    for (const bool zero : {false, true}) {
      c.zero = zero;
      layers::TrainerOptions options = options_of("M-*E", Dtype::fp64);
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
      options = options_of("ME*-", Dtype::fp64);
      options.model.mamba.form = layers::ModelConfig::Mamba::Form::fused;
      axes.compare(options, c);
      if (testing::Test::HasFailure()) return;
    }
}

// One document over all ranks, those that end where a rank's tokens do, those of one token on
// either side of it, and a tail that begins inside.
TEST(axes, documents_of_shared_sequences_equal_one_rank) {
  const Axes axes;
  for (Case c : axes.grids()) {
    if (c.context == 1) continue;
    for (const std::vector<std::int32_t>& documents : {std::vector<std::int32_t>{0, 24},
                                                       {0, 6, 12, 18, 24},
                                                       {0, 11, 12, 13, 24},
                                                       {0, 5, 5, 14}}) {
      c.documents = documents;
      using Exchange = layers::ModelConfig::Attention::Exchange;
      const Exchange heads = exchange_of_heads(c);
      for (const auto& [exchange, zigzag] :
           {std::pair{heads, false}, {Exchange::keys, false}, {Exchange::keys, true}})
        for (const char* pattern : {"*", "M", "M*-E"}) {
          if (static_cast<int>(std::string(pattern).size()) < c.pipeline) continue;
          if (zigzag && 24 / c.context % 2 != 0) continue;
          SCOPED_TRACE(text(c, pattern) + fmt::format(", {} documents, exchange {}, zigzag {}",
                                                      documents.size() - 1, int(exchange), zigzag));
          layers::TrainerOptions options = options_of(pattern, Dtype::fp64);
          options.model.attention.exchange = exchange;
          options.model.attention.zigzag = zigzag;
          axes.compare(options, c);
          if (testing::Test::HasFailure()) return;
        }
    }
  }
}

// Fewer key and value heads than ranks: several have the same one, and its gradient is their sum.
TEST(axes, key_heads_of_several_ranks_equal_one_rank) {
  const Axes axes;
  for (Case c : axes.grids()) {
    if (c.context == 1) continue;
    for (const int kv_heads : {1, 2, 4}) {
      layers::TrainerOptions options = options_of("M*-*", Dtype::fp64);
      options.model.attention.heads = 8;
      options.model.attention.kv_heads = kv_heads * c.tensor;
      options.model.attention.exchange = layers::ModelConfig::Attention::Exchange::heads;
      if (options.model.attention.kv_heads > 8) continue;
      SCOPED_TRACE(text(c, "M*-*") + fmt::format(", {} key heads", kv_heads));
      axes.compare(options, c);
      if (testing::Test::HasFailure()) return;
    }
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
layers::TrainerOptions options_of_eight(const std::string& pattern) {
  layers::TrainerOptions options = options_of(pattern, Dtype::fp64);
  options.model.attention.heads = 8;
  options.model.mamba.heads = 8;
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
        layers::TrainerOptions options = options_of_eight(norms ? "*" : "*-*");
        options.model.attention.kv_heads = kv_heads;
        options.model.attention.norms = norms;
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
      for (const char* pattern : {"M*-E", "E-"}) {
        if (static_cast<int>(std::string(pattern).size()) < c.pipeline) continue;
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
    layers::TrainerOptions options = options_of("M*-E", Dtype::fp64);
    options.step.tokens = options.step.sequence = 26;
    c.documents = {0, 9, 25};
    SCOPED_TRACE(text(c, "M*-E"));
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
        layers::TrainerOptions options = options_of_eight("M-M");
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
    layers::TrainerOptions options = axes.shared(options_of_eight("*-"), c);
    options.model.attention.heads = 24;
    options.model.attention.kv_heads = 3;
    try {
      const layers::TrainerPlan plan(options);
      FAIL() << "three key heads were shared by " << c.tensor << " ranks";
    } catch (const execution::Error& error) {
      EXPECT_EQ(error.exit(), execution::Exit::usage);
      EXPECT_NE(std::string(error.what()).find("model.num_query_groups = 3"), std::string::npos);
    }
  }
}

// Each rank's share of a key's gradient is rounded with the others', once.
TEST(axes, shares_of_key_gradients_travel_unrounded) {
  const Axes axes;
  for (const Case& c : axes.grids()) {
    if (c.context == 1 || c.pipeline > 1) continue;
    using Exchange = layers::ModelConfig::Attention::Exchange;
    for (const auto& [exchange, zigzag] :
         {std::pair{Exchange::keys, false}, {Exchange::keys, true}, {Exchange::heads, false}}) {
      if (zigzag && 24 / c.context % 2 != 0) continue;
      layers::TrainerOptions options = options_of("*", Dtype::bf16);
      options.model.attention = {.heads = 8, .kv_heads = c.tensor, .head_dim = 4};
      options.model.attention.exchange = exchange;
      options.model.attention.zigzag = zigzag;
      const layers::TrainerPlan plan(axes.shared(options, c));
      const execution::Program& program = plan.training().front()->recorded.program;
      int found = 0;
      for (const execution::Op& op : program.ops()) {
        const bool sums =
            op.name.ends_with(exchange == Exchange::heads ? "exchange_dkv" : "reduce_dkv");
        if (!sums) continue;
        ++found;
        EXPECT_EQ(program.info(op.uses.front().tensor).buffers[0].dtype, Dtype::fp32);
        EXPECT_EQ(op.communication->dtype, Dtype::fp32);
      }
      EXPECT_EQ(found, 1) << text(c, "*") << " exchange " << int(exchange);
    }
  }
}

TEST(axes, stretches_of_odd_tokens_are_refused) {
  const Axes axes;
  for (const Case& c : axes.grids()) {
    if (c.context == 1 || c.tensor > 1 || c.pipeline > 1) continue;
    layers::TrainerOptions options = axes.shared(options_of("*", Dtype::fp64), c);
    options.step.tokens = options.step.sequence = 5 * c.context;
    options.model.attention.exchange = layers::ModelConfig::Attention::Exchange::keys;
    EXPECT_NO_THROW(layers::TrainerPlan{options});
    options.model.attention.zigzag = true;
    try {
      const layers::TrainerPlan plan(options);
      FAIL() << "five tokens were two stretches";
    } catch (const execution::Error& error) {
      EXPECT_EQ(error.exit(), execution::Exit::usage);
      EXPECT_NE(std::string(error.what()).find("parallel.context_tokens"), std::string::npos);
    }
  }
}

TEST(axes, heads_that_do_not_divide_are_refused) {
  const Axes axes;
  for (const Case& c : axes.grids()) {
    if (c.context == 1 || c.tensor > 1 || c.pipeline > 1) continue;
    layers::TrainerOptions options = axes.shared(options_of("*", Dtype::fp64), c);
    options.model.attention.heads = 9;
    options.model.attention.kv_heads = 3;
    EXPECT_NO_THROW(layers::TrainerPlan{options});
    options.model.attention.exchange = layers::ModelConfig::Attention::Exchange::heads;
    try {
      const layers::TrainerPlan plan(options);
      FAIL() << "9 heads were shared by " << c.context << " ranks";
    } catch (const execution::Error& error) {
      EXPECT_EQ(error.exit(), execution::Exit::usage);
      const std::string what = error.what();
      for (const std::string& part :
           {fmt::format("parallel.context = {}", c.context), std::string("all_gather"),
            std::string("parallel.context may be 3, 9;")})
        EXPECT_NE(what.find(part), std::string::npos) << what;
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
      layers::TrainerOptions options = options_of("M*E-E", Dtype::fp64);
      options.model.moe.exchange = layers::ModelConfig::Moe::Exchange::slots;
      options.expert_capacity = {1.25};
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
        layers::TrainerOptions options = options_of("-EE", Dtype::fp64);
        options.model.moe.frozen_tokens = options.step.tokens;
        options.model.moe.exchange = exchange;
        options.expert_capacity = {1.25};
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
      layers::TrainerOptions options = options_of("E-E", Dtype::fp64);
      options.model.moe.forced_load = load;
      options.expert_capacity = {1.25};
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
      if (zigzag && 24 / c.context % 2 != 0) continue;
      layers::TrainerOptions given = options_of("M*-E", Dtype::bf16);
      given.model.attention.exchange = exchange;
      given.model.attention.zigzag = zigzag;
      const layers::TrainerOptions options = axes.shared(given, c);
      const Outcome once = run(options, Axes::part_of(options.sharing.ranks), c);
      const layers::TrainerOptions again = axes.shared(given, c);
      const Outcome twice = run(again, Axes::part_of(again.sharing.ranks), c);
      EXPECT_EQ(once.losses, twice.losses);
      EXPECT_EQ(once.norms, twice.norms);
      EXPECT_EQ(once.state, twice.state);
    }
  }
}

}  // namespace
}  // namespace stowage::ctest
