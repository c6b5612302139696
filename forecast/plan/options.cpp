#include "forecast/plan/options.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "forecast/plan/checkpoint_memory.hpp"
#include "forecast/plan/run_section.hpp"
#include "forecast/rates/machine_facts.hpp"
#include "inputs/data/data_section.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/recording/config_section.hpp"
#include "layers/step/parameter_factors.hpp"
#include "layers/step/step_section.hpp"
#include "offload/offload_section.hpp"

namespace stowage::forecast {

using inputs::Deck;
using inputs::key;
using inputs::read;
using inputs::TrainConfig;

layers::ModelConfig model_config(const Deck& deck) {
  const auto grid = read<ParallelConfig>(deck);
  auto model = read<layers::ModelConfig>(deck);
  model.virtual_stages = grid.virtual_stages;
  model.attention.exchange = grid.context_attention;
  model.attention.zigzag = grid.zigzag;
  model.moe.exchange = grid.expert_exchange;
  return model;
}

layers::Model whole_model(const Deck& deck) {
  layers::ModelConfig config = model_config(deck);
  std::erase(config.pattern, '|');
  config.virtual_stages = 1;
  return {config,
          {read(deck, &TrainConfig::dtype)},
          1,
          parallel::planned_ranks(parallel::GridShape{}, 0)};
}

offload::GraphOptions graph_options(const Deck& deck) {
  const auto graphs = read<offload::GraphConfig>(deck);
  return {.mode = graphs.mode,
          .scopes = graphs.scopes,
          .copies = graphs.copies,
          .delay_until_graph = read(deck, &offload::OffloadConfig::delay_until_graph)};
}

namespace {

/// Four buckets: copies of some tens of MiB, of which several fit where activations were.
std::int64_t window_elements(std::int64_t bucket_elements) {
  constexpr std::int64_t kBuckets = 4;
  const std::int64_t grains = kBuckets * bucket_elements / execution::kBucketGrain;
  return std::max<std::int64_t>(grains, 1) * execution::kBucketGrain;
}

/// @throws Error (exit 2) if a line of factors is of no parameter, or if no parameter is trained
void check_factors(const Deck& deck, const layers::OptimizerConfig& config) {
  if (config.lr_factors.empty() && config.decay_factors.empty()) return;
  const std::vector<layers::Parameter> parameters = whole_model(deck).parameters();
  for (const auto member :
       {&layers::OptimizerConfig::lr_factors, &layers::OptimizerConfig::decay_factors})
    for (const std::string& line : config.*member)
      if (std::ranges::none_of(parameters, [&](const layers::Parameter& p) {
            return layers::read_parameter_factor(line)->matches(p.name);
          }))
        execution::throw_usage(
            "{}: '{}' is of no parameter of this model; its parameters are such as {}, {} and {}",
            cite(deck, member), line, parameters.front().name,
            parameters[parameters.size() / 2].name, parameters.back().name);
  if (std::ranges::all_of(parameters, [&](const layers::Parameter& p) {
        return layers::factor_of(p.name, config.lr_factors, 1) == 0;
      }))
    execution::throw_usage("{} leaves no parameter to train",
                           cite(deck, &layers::OptimizerConfig::lr_factors));
}

layers::OptimizerConfig optimizer(const Deck& deck) {
  const auto validate = read<ValidateConfig>(deck);
  auto config = read<layers::OptimizerConfig>(deck);
  check_factors(deck, config);
  config.spikes = read<kernels::SpikeRule>(deck);
  config.seed = static_cast<std::uint64_t>(read(deck, &inputs::RunConfig::seed));
  config.attempts = validate.bad_steps_again || config.spikes.factor > 0;
  config.own_loss = validate.bad_steps_again;
  config.part_norms = read(deck, &inputs::RunConfig::gradient_norms);
  config.update_norms = read(deck, &inputs::RunConfig::update_norms);
  config.own_norm = validate.bad_steps_again && validate.own_norms;
  return config;
}

/// @param besides the states of the rule: master and ema, if there are any
/// @throws Error (exit 2) if a name is no state of the optimizer
layers::StatesOnHost states_on_host(const Deck& deck, const layers::Optimizer& rule,
                                    const std::vector<std::string_view>& besides) {
  const auto offload = read<offload::OffloadConfig>(deck);
  layers::StatesOnHost host{.fraction = offload.states_fraction,
                            .automatic = offload.automatic_states()};
  for (const std::string& word : offload.states) {
    if (word == "none") break;
    const std::size_t before = host.names.size();
    const bool all = word == "auto" || word == "all";
    for (const std::string_view state : besides)
      if (all || word == state) host.names.emplace_back(state);
    for (const std::string_view state : rule.all_states())
      if (all || word == "moments" || word == state) host.names.emplace_back(state);
    if (word == "gradients") host.names.emplace_back(layers::kGradient);
    if (word == "parameters") host.names.emplace_back(layers::kParameter);
    if (host.names.size() == before)
      execution::throw_usage(
          "{}: {} is no state of {}; allowed: none, auto, all, {}{}moments, {}, "
          "gradients, parameters",
          inputs::cite(deck, &offload::OffloadConfig::states), word, rule.name,
          fmt::join(besides, ", "), besides.empty() ? "" : ", ",
          fmt::join(rule.all_states(), ", "));
  }
  return host;
}

/// @throws Error (exit 2) if states or sums of gradients are stored as the step cannot take them
void check_formats(const Deck& deck, const TrainerOptions& options, int ranks) {
  using layers::StateType;
  const layers::StateOptions& state = options.state;
  const bool rounds_gradients = state.type.gradients == execution::Dtype::bf16;
  if (!state.optimizer->without_master && (!state.type.format->master || rounds_gradients)) {
    const std::string formats = inputs::names_of(
        layers::kStateFormats, [](const layers::StateFormat& format) { return format.master; });
    execution::throw_usage(
        "{} needs masters and fp32 gradients, which {} does not have; allowed with it: {}",
        cite(deck, &layers::OptimizerChoice::rule),
        rounds_gradients ? cite(deck, &StateType::gradients) : cite(deck, &StateType::format),
        rounds_gradients ? "\"fp32\"" : formats);
  }
  if (!rounds_gradients) return;
  const auto refuse = [&](std::string_view what) {
    execution::throw_usage("{} does not go with {}; allowed with it: \"fp32\"",
                           cite(deck, &StateType::gradients), what);
  };
  if (ranks > 1) refuse(fmt::format("{} ranks", ranks));
  if (options.model.mtp.depths > 0) refuse(cite(deck, &layers::ModelConfig::Mtp::depths));
  if (read(deck, &inputs::RunConfig::same_on_ranks))
    refuse(cite(deck, &inputs::RunConfig::same_on_ranks));
}

/// Microbatches of a leaf. @param microbatches of a rank
int leaf_microbatches(const Deck& deck, std::int64_t microbatches, const parallel::Ranks& ranks) {
  const auto leaves = read(deck, &inputs::RunConfig::same_bits_leaves);
  if (leaves == 0) return 1;
  return static_cast<int>(microbatches * ranks.sequences().parts / leaves);
}

/// @throws Error (exit 2) if averages are to be evaluated that there are not, or that cannot change
/// places with weights
void check_averages(const Deck& deck, const TrainerOptions& options) {
  if (!read(deck, &inputs::EvalConfig::ema)) return;
  if (options.optimizer.ema_decay == 0)
    execution::throw_usage("{} needs averages of the weights: {}; allowed: above 0, such as 0.999",
                           cite(deck, &inputs::EvalConfig::ema),
                           cite(deck, &layers::OptimizerConfig::ema_decay));
  if (options.precision.has_master() && !options.state.type.format->master)
    execution::throw_usage(
        "{} needs masters, which {} does not have; allowed with it: {}",
        cite(deck, &inputs::EvalConfig::ema), cite(deck, &layers::StateType::format),
        inputs::names_of(layers::kStateFormats,
                         [](const layers::StateFormat& format) { return format.master; }));
}

layers::Sharing sharing(const Deck& deck, const ParallelConfig& grid, std::int64_t microbatches,
                        const parallel::Ranks& ranks) {
  return {.ranks = ranks,
          .zero = grid.zero == 1,
          .same_on_ranks = read(deck, &inputs::RunConfig::same_on_ranks),
          .leaf_microbatches = leaf_microbatches(deck, microbatches, ranks),
          .bf16_gradients = grid.bf16_gradients,
          .schedule = grid.schedule,
          .overlap_microbatches = grid.overlap_microbatches,
          .stage_times = {},
          .zero_bubble_bytes = static_cast<double>(grid.zero_bubble_bytes)};
}

}  // namespace

RunNeeds training_needs(const Deck& deck, const inputs::Data& data) {
  return {.capacities = capacities(deck, data.max_documents()),
          .pairs = data.max_pairs(),
          .evaluates = !data.held_out.empty(),
          .saves = true};
}

RunNeeds step_needs(const inputs::Data& data) {
  return {.capacities = {data.max_documents()}, .pairs = data.max_pairs()};
}

TrainerOptions trainer_options(const Deck& deck, const RunNeeds& needs, std::int64_t microbatches,
                               const parallel::Ranks& ranks, parallel::RankOrder order) {
  const auto train = read<TrainConfig>(deck);
  const auto config = read<ExecutionConfig>(deck);
  const auto grid = read<ParallelConfig>(deck);
  TrainerOptions options;
  options.model = model_config(deck);
  options.model.moe.tells_load = read(deck, &inputs::RunConfig::router_load);
  options.model.tells_stream = read(deck, &inputs::RunConfig::activation_norms);
  options.precision.storage = train.dtype;
  options.step.sequence = train.seq_length;
  options.step.tokens = train.microbatch_tokens();
  options.step.microbatches = static_cast<int>(microbatches);
  options.step.pairs = needs.pairs;
  if (read(deck, &inputs::RunConfig::source_losses))
    options.step.sources = static_cast<int>(read(deck, &inputs::DataConfig::mix).size());
  options.capacities = needs.capacities;
  options.evaluation_microbatches = needs.evaluates ? options.step.microbatches : 0;
  options.optimizer = optimizer(deck);
  options.weight_norms = read(deck, &inputs::RunConfig::weight_norms) > 0;
  options.state.bucket_elements = grid.bucket_elements;
  options.state.optimizer = &read<layers::OptimizerChoice>(deck).row();
  options.state.type = read<layers::StateType>(deck);
  check_formats(deck, options, ranks.size());
  check_averages(deck, options);
  options.evaluates_ema = needs.evaluates && read(deck, &inputs::EvalConfig::ema);
  std::vector<std::string_view> besides;
  if (options.state.type.has_master(options.precision)) besides.push_back(layers::kMaster);
  if (options.optimizer.ema_decay > 0) besides.push_back(layers::kEma);
  options.state.host = states_on_host(deck, *options.state.optimizer, besides);
  options.optimizer.window_elements = window_elements(grid.bucket_elements);
  options.sharing = sharing(deck, grid, microbatches, ranks);
  options.seed = static_cast<std::uint64_t>(read(deck, &inputs::RunConfig::seed));
  options.planner.policy =
      read<offload::OffloadConfig>(deck).policy(ranks.coordinates[parallel::Axis::pipeline]);
  options.planner.rates = machine_rates(machine_facts(deck), ranks.shape);
  options.planner.chains = {order == parallel::RankOrder::chain,
                            std::string(parallel::name(parallel::kApart))};
  options.planner.graphs = graph_options(deck);
  if (config.audit) options.planner.alignment = 4096;
  options.executor.ring_slots = config.ring_slots;
  options.executor.audit = config.audit;
  options.executor.warmup_steps = read(deck, &offload::GraphConfig::warmup_steps);
  options.capacity_factors = grid.expert_capacity;
  std::ranges::sort(options.capacity_factors);
  for (const std::int64_t graphed : read(deck, &inputs::DataConfig::graphed_documents))
    options.largest_graphed = std::max(options.largest_graphed, graphed);
  options.state_copy = needs.saves && copies_within_device(deck);
  options.logits = needs.logits;
  return options;
}

parallel::GridShape grid_shape(const Deck& deck, int ranks) {
  const auto grid = read<ParallelConfig>(deck);
  return parallel::fit_grid(ranks, grid.tensor, grid.context, grid.expert, grid.pipeline);
}

parallel::SequencePart sequence_part(const Deck& deck, const parallel::Communicator& world) {
  return parallel::sequence_part(grid_shape(deck, world.size()), world.rank());
}

parallel::NcclOptions nccl_options(const Deck& deck) {
  const auto grid = read<ParallelConfig>(deck);
  return {.algorithm = grid.nccl_algorithm,
          .protocol = grid.nccl_protocol,
          .channels = grid.nccl_channels,
          .copies = grid.copies,
          .patience_s = grid.patience_s};
}

std::string_view host_only(const Deck& deck) {
  const auto config = read<ExecutionConfig>(deck);
  if (read(deck, &TrainConfig::dtype) == execution::Dtype::fp64) return key(&TrainConfig::dtype);
  if (config.audit) return key(&ExecutionConfig::audit);
  if (config.delay_seed != 0) return key(&ExecutionConfig::delay_seed);
  return {};
}

parallel::RankOrder rank_order_on(bool gpus) {
  return gpus ? parallel::RankOrder::chain : parallel::RankOrder::partial;
}

parallel::RankOrder planned_order(const Deck& deck) {
  return rank_order_on(read(deck, &ExecutionConfig::backend) != ExecutionConfig::Backend::host &&
                       host_only(deck).empty());
}

}  // namespace stowage::forecast
