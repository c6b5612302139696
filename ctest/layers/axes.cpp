#include "axes.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "parallel/transport/connect.hpp"
#include "parallel/transport/host_transport.hpp"

namespace stowage::ctest {
namespace {

using execution::Dtype;

constexpr double kTolerance = 1e-10;

bool integers(const execution::TensorInfo& info) {
  const Dtype dtype = info.buffers[0].dtype;
  return dtype == Dtype::int32 || dtype == Dtype::int64;
}

/// The parameter that a persistent tensor belongs to, or none.
const layers::Parameter* parameter_of(const std::vector<layers::Parameter>& all,
                                      const std::string& tensor) {
  const auto found = std::ranges::find(all, layers::parameter_of(tensor), &layers::Parameter::name);
  return found == all.end() ? nullptr : &*found;
}

/// By name: a number of doubles as they lie in memory.
using Values = std::map<std::string, std::vector<double>>;

std::string bytes_of(const Values& values) {
  std::string bytes;
  for (const auto& [name, of] : values) {
    bytes += fmt::format("{}\n{}\n", name, of.size());
    bytes.append(reinterpret_cast<const char*>(of.data()), of.size() * sizeof(double));
  }
  return bytes;
}

Values values_of(const std::string& bytes) {
  Values values;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t name_end = bytes.find('\n', at), size_end = bytes.find('\n', name_end + 1);
    std::vector<double>& of = values[bytes.substr(at, name_end - at)];
    of.resize(std::stoul(bytes.substr(name_end + 1, size_end - name_end - 1)));
    std::memcpy(of.data(), bytes.data() + size_end + 1, of.size() * sizeof(double));
    at = size_end + 1 + of.size() * sizeof(double);
  }
  return values;
}

/// What a rank alone computes, which all ranks would: rank 0 does, and nothing of its plan shares
/// bytes.
Outcome run_alone(const parallel::Communicator& world, forecast::TrainerOptions options,
                  const Case& c) {
  std::string bytes;
  if (world.rank() == 0) {
    options.planner.enough_bytes = offload::kUnbounded;
    Outcome outcome = run(std::move(options), {0, 1}, c);
    outcome.state["losses"] = outcome.losses;
    outcome.state["norms"] = outcome.norms;
    bytes = bytes_of(outcome.state);
  }
  Outcome outcome;
  outcome.state = values_of(world.broadcast(bytes));
  outcome.losses = outcome.state.at("losses");
  outcome.norms = outcome.state.at("norms");
  return outcome;
}

/// @param what  makes the words for a value that is not near: there are many values
template <class What>
void expect_near(double value, double wanted, const What& what) {
  const double most = kTolerance * std::max(1.0, std::abs(wanted));
  if (std::abs(value - wanted) <= most) return;
  EXPECT_NEAR(value, wanted, most) << what();
}

}  // namespace

forecast::TrainerOptions options_of(const std::string& pattern, Dtype dtype) {
  forecast::TrainerOptions options = tiny_options(pattern, dtype);
  layers::ModelConfig& model = options.model;
  model.vocabulary = 16;
  model.attention.kv_heads = 4;
  model.mamba.groups = 4;
  model.delta.key_heads = 2;
  model.delta.value_heads = 4;
  model.mlp.ffn = 12;
  model.moe = {.experts = 8, .topk = 3, .ffn = 7, .shared_ffn = 8, .scaling = 1.5};
  model.moe.aux_coeff = 0.02;
  model.moe.z_coeff = 0.01;
  model.z_loss_coeff = 0.02;
  model.tells_stream = true;
  options.step.sources = 3;
  options.step.tokens = options.step.sequence = 24;
  options.evaluation_microbatches = 1;
  options.optimizer.lr_factors = {"layers.0.* 0.5"};
  options.optimizer.decay_factors = {"*norm.weight 0.25"};
  return options;
}

void make_zigzag(forecast::TrainerOptions& options, int context) {
  options.step.tokens = options.step.sequence = 24 % (2 * context) == 0 ? 24 : 6 * context;
  options.model.attention.zigzag = true;
}

Outcome run(forecast::TrainerOptions options, TinyRun::Part part, const Case& c) {
  TinyRun tiny(std::move(options));
  return run(tiny, part, c);
}

Outcome run(TinyRun& tiny, TinyRun::Part part, const Case& c) {
  if (!c.documents.empty()) tiny.set_documents(c.documents);
  if (c.routing) tiny.freeze_routing(c.routing);
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    outcome.reruns += tiny.train_with_capacity(step, 1e-2, part);
    for (const double value : tiny.told()) outcome.losses.push_back(value);
    outcome.norms.push_back(tiny.grad_norm());
  }
  const execution::PersistentLayout& layout = tiny.trainer().plan().layout();
  for (const execution::Bucket& bucket : layout.buckets())
    for (const std::string& name : bucket.tensors)
      if (layout.has(name) && !integers(layout.info(name))) outcome.state[name] = tiny.read(name);
  return outcome;
}

forecast::TrainerOptions Axes::shared(forecast::TrainerOptions options, const Case& c) const {
  const parallel::GridShape grid =
      parallel::fit_grid(world.size(), c.tensor, c.context, c.expert, c.pipeline);
  options.sharing.ranks = parallel::connect(world, grid, parallel::make_host_transport);
  options.sharing.zero = c.zero;
  options.step.microbatches = c.microbatches;
  options.model.moe.frozen_tokens /= c.tensor;
  return options;
}

TinyRun::Part Axes::part_of(const parallel::Ranks& ranks) {
  const parallel::SequencePart part = ranks.sequences();
  return {part.index, part.parts};
}

int Axes::compare(const forecast::TrainerOptions& given, const Case& c) const {
  const forecast::TrainerOptions options = shared(given, c);
  const parallel::Ranks& ranks = options.sharing.ranks;
  TinyRun tiny(options);
  const Outcome ours = run(tiny, part_of(ranks), c);
  forecast::TrainerOptions alone = given;
  alone.step.microbatches = c.microbatches * ranks.sequences().parts;
  alone.model.virtual_stages = 1;
  alone.sharing.schedule = layers::PipelineSchedule::one_forward_one_backward;
  const Outcome wanted = run_alone(world, alone, c);
  EXPECT_EQ(ours.losses.size(), wanted.losses.size());
  for (std::size_t i = 0; i < ours.losses.size(); ++i)
    expect_near(ours.losses[i], wanted.losses[i],
                [&] { return fmt::format("{} of what steps tell", i); });
  for (int step = 0; step < kSteps; ++step) {
    const auto at = static_cast<std::size_t>(step);
    expect_near(ours.norms[at], wanted.norms[at],
                [&] { return fmt::format("norm of step {}", step); });
  }
  const forecast::TrainerPlan& plan = tiny.trainer().plan();
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
      expect_near(values[i], whole[index(i)], [&] { return fmt::format("{}[{}]", name, i); });
    if (testing::Test::HasFailure()) break;
  }
  return ours.reruns;
}

std::vector<Case> Axes::all_grids() const {
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
              {.context = 4},
              {.expert = 4, .context = 2},
              {.tensor = 2, .context = 4},
              {.tensor = 2, .expert = 2, .context = 2},
              {.tensor = 2, .context = 2, .pipeline = 2}};
    default:
      return {{1, 1}};
  }
}

std::vector<Case> Axes::grids() const {
  std::vector<Case> all = all_grids();
  if (world.size() <= 2 || std::getenv("STOWAGE_EVERY_PAIR") != nullptr) return all;
  static std::size_t number = 0;  // the same on all ranks
  const std::size_t first = number++ % 2;
  std::vector<Case> dealt;
  for (std::size_t i = first; i < all.size(); i += 2) dealt.push_back(all[i]);
  return dealt;
}

layers::ModelConfig::Attention::Exchange exchange_of_heads(const Case& c) {
  using Exchange = layers::ModelConfig::Attention::Exchange;
  return 4 % (c.tensor * c.context) == 0 ? Exchange::heads : Exchange::automatic;
}

std::string text(const Case& c, const std::string& pattern) {
  return fmt::format("{} tensor {} context {} expert {} pipeline {} zero {} microbatches {}",
                     pattern, c.tensor, c.context, c.expert, c.pipeline, c.zero, c.microbatches);
}

}  // namespace stowage::ctest
