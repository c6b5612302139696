#include "forecast/layouts/layout.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "execution/error.hpp"
#include "forecast/plan/options.hpp"
#include "forecast/plan/parallel_section.hpp"
#include "forecast/rates/machine_facts.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/recording/config_section.hpp"
#include "layers/step/step_section.hpp"

namespace stowage::forecast {
namespace {

using layers::PassTimes;
using parallel::Axis;

constexpr double kNormBytes = 4;
/// Bytes of an element's states, with a master and an average among them.
double state_bytes(const layers::StateOptions& state, layers::Precision precision,
                   const layers::Optimizer& rule) {
  const std::size_t accum = execution::size_bytes(precision.accumulation());
  std::size_t sum = (state.type.has_master(precision) ? accum : 0) + (state.ema ? accum : 0);
  for (std::size_t i = 0; i < rule.states.size(); ++i)
    sum += execution::size_bytes(state.type.of(i, precision));
  return static_cast<double>(sum);
}

/// What the optimizer moves for an element: its gradient read, its states read and written, and the
/// weight written, which without a master is read too. An average reads the master or the weight
/// once more.
double update_bytes(const layers::StateOptions& state, layers::Precision precision,
                    const layers::Optimizer& rule) {
  const auto weight = static_cast<double>(execution::size_bytes(precision.storage));
  const auto accum = static_cast<double>(execution::size_bytes(precision.accumulation()));
  const bool has_master = state.type.has_master(precision);
  const double averaged = !state.ema ? 0 : has_master ? accum : weight;
  return static_cast<double>(execution::size_bytes(state.type.gradient(precision))) +
         2 * state_bytes(state, precision, rule) + (has_master ? 1 : 2) * weight + averaged;
}

parallel::GridShape without(parallel::GridShape shape, std::initializer_list<Axis> axes) {
  for (const Axis axis : axes) shape.extent[axis] = 1;
  return shape;
}

/// What the stages of a layout depend on: its grid without data, and stages of a rank.
std::array<int, 5> stages_of(const Layout& layout) {
  const parallel::GridShape& shape = layout.shape;
  return {shape[Axis::tensor], shape[Axis::context], shape[Axis::expert], shape[Axis::pipeline],
          layout.virtual_stages};
}

/// Of one microbatch on the slowest rank.
PassTimes slowest(layers::PipelineShape shape, const std::vector<PassTimes>& stages) {
  PassTimes most;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    PassTimes all;
    for (int chunk = 0; chunk < shape.virtual_stages; ++chunk)
      all += stages[static_cast<std::size_t>(shape.stage(rank, chunk))];
    if (all.all_s() > most.all_s()) most = all;
  }
  return most;
}

/// Its kinds of layers, each twice: what a layer of a kind takes is the same in any place but the
/// first.
std::string each_kind_twice(const std::string& pattern) {
  std::string kinds;
  for (const char letter : pattern)
    if (kinds.find(letter) == std::string::npos) kinds += letter;
  return kinds + kinds;
}

/// What the layers of a pattern take, if those of another with all of its kinds take that.
std::vector<PassTimes> layers_of(const std::string& pattern, const std::string& timed,
                                 const std::vector<PassTimes>& times) {
  if (pattern == timed) return times;
  std::vector<PassTimes> all;
  for (const char letter : pattern) all.push_back(times[timed.rfind(letter)]);
  return all;
}

}  // namespace

std::string Layout::name() const {
  std::string text;
  const auto add = [&](char kind, int extent) {
    if (extent > 1) text += fmt::format("{}{}{}", text.empty() ? "" : "_", kind, extent);
  };
  for (const Axis axis : parallel::kAllAxes) {
    add(parallel::name(axis).front(), shape[axis]);
    if (axis == Axis::pipeline) add('v', virtual_stages);
  }
  return (text.empty() ? "d1" : text) + (zero ? "_zero" : "");
}

std::vector<std::string> Layout::overrides() const {
  std::vector<std::string> all{inputs::override_of(&ParallelConfig::zero, zero ? "1" : "0")};
  for (const Axis axis : parallel::kAllAxes)
    all.push_back(fmt::format("parallel.{}={}", parallel::name(axis), shape[axis]));
  if (virtual_stages > 1) {
    all.push_back(
        inputs::override_of(&ParallelConfig::virtual_stages, std::to_string(virtual_stages)));
    all.push_back(inputs::override_of(&ParallelConfig::schedule, "interleaved"));
  }
  return all;
}

TrainerOptions layout_options(const inputs::Deck& deck, const PlannedData& data,
                              const Layout& layout, int rank) {
  TrainerOptions options = rank_options(deck, data, layout.shape, rank, layout.microbatches);
  options.sharing.zero = layout.zero;
  options.sharing.schedule = layout.virtual_stages > 1 ? layers::PipelineSchedule::interleaved
                                                       : layers::PipelineSchedule::automatic;
  options.model.virtual_stages = layout.virtual_stages;
  options.larger_classes = false;
  options.evaluation_microbatches = 0;  // takes less than a step
  return options;
}

const LayoutEstimator::Cut& LayoutEstimator::cut(const Layout& layout) {
  const parallel::GridShape& shape = layout.shape;
  const auto [found, added] =
      cuts_.try_emplace({shape[Axis::tensor], shape[Axis::context], shape[Axis::expert]});
  Cut& cut = found->second;
  if (!added) return cut;
  const parallel::Ranks ranks =
      parallel::planned_ranks(without(shape, {Axis::pipeline, Axis::data}), 0);
  try {
    TrainerOptions options = rank_options(deck_, data_, ranks.shape, 0, 1);
    std::erase(options.model.pattern, '|');
    const std::string pattern = options.model.pattern;
    if (each_kind_) options.model.pattern = each_kind_twice(pattern);
    options.step.capacity = options.capacities.back();
    cut.parts = forecast::predict_parts(options.model, options.precision, options.step, ranks,
                                        options.planner.rates);
    for (PartTimes* times : {&cut.parts.times, &cut.parts.compute, &cut.parts.exchange})
      times->layers = layers_of(pattern, options.model.pattern, times->layers);
  } catch (const execution::Error& error) {
    if (error.exit() != execution::Exit::usage) throw;
    cut.refused = error.what();
  }
  return cut;
}

/// By part of the model, whose parameters are the same in any stage.
const LayoutEstimator::PartElements& LayoutEstimator::part_elements(const Layout& layout) {
  const parallel::GridShape shape = without(layout.shape, {Axis::pipeline, Axis::data});
  const auto [found, added] =
      parts_.try_emplace({shape[Axis::tensor], shape[Axis::context], shape[Axis::expert]});
  PartElements& parts = found->second;
  if (!added) return parts;
  layers::ModelConfig config = model_config(deck_);
  std::erase(config.pattern, '|');
  config.virtual_stages = 1;
  const layers::Model model(config, {inputs::read(deck_, &inputs::TrainConfig::dtype)}, 1,
                            parallel::planned_ranks(shape, 0));
  const layers::Optimizer& rule = inputs::read<layers::OptimizerChoice>(deck_).row();
  const auto numbers = inputs::read<layers::OptimizerConfig>(deck_);
  parts.layers.resize(config.pattern.size());
  parts.tied = model.head_has_embedding();
  for (const layers::Parameter& parameter : model.parameters()) {
    constexpr std::string_view kLayers = "layers.";
    Elements& part = parameter.name.starts_with(kLayers)
                         ? parts.layers[std::stoul(parameter.name.substr(kLayers.size()))]
                     : parameter.name == "embedding.weight" ? parts.embedding
                                                            : parts.head;
    const layers::Optimizer& own = rule.of(parameter);
    part.counts[{parameter.group, own.whole_matrices}] += static_cast<double>(parameter.elements());
    if (own.flops != nullptr) part.matrix_flops += own.flops(parameter, numbers);
  }
  return parts;
}

/// The layers with the cuts between stages: the deck's own, or the best ones by their times.
const std::string& LayoutEstimator::cut_pattern(const Layout& layout, const PartTimes& times) {
  std::string& known = cut_patterns_[stages_of(layout)];
  if (!known.empty()) return known;
  const std::string pattern = inputs::read(deck_, &layers::ModelConfig::pattern);
  known = pattern.find('|') == std::string::npos
              ? forecast::balanced_cuts(pattern, layout.pipeline(), times)
              : pattern;
  return known;
}

const LayoutEstimator::Elements& LayoutEstimator::elements(const Layout& layout,
                                                           const std::string& pattern) {
  const auto [found, added] = elements_.try_emplace(stages_of(layout));
  Elements& most = found->second;
  if (!added) return most;
  const PartElements& parts = part_elements(layout);
  const layers::PipelineShape stages = layout.pipeline();
  const std::vector<layers::Stage> divided = layers::divide(pattern, stages.stages());
  double largest = 0;
  for (int rank = 0; rank < stages.ranks; ++rank) {
    Elements of_rank;
    double all = 0;
    const auto add = [&](const Elements& part) {
      for (const auto& [group, count] : part.counts) of_rank.counts[group] += count, all += count;
      of_rank.matrix_flops += part.matrix_flops;
    };
    bool embedding = false;
    for (int chunk = 0; chunk < stages.virtual_stages; ++chunk) {
      const layers::Stage& stage = divided[static_cast<std::size_t>(stages.stage(rank, chunk))];
      for (int layer = stage.begin; layer < stage.end; ++layer)
        add(parts.layers[static_cast<std::size_t>(layer)]);
      embedding |= stage.embedding || (stage.head && parts.tied);
      if (stage.head) add(parts.head);
    }
    if (embedding) add(parts.embedding);
    if (all > largest) largest = all, most = std::move(of_rank);
  }
  return most;
}

/// Gradients are summed beside the last backward and weights gathered beside the first forward,
/// while nothing else is exchanged; of each the bucket at the end is beside nothing. Parts of whole
/// matrices go to their owners, and updates come back, beside the owners' products.
/// @param times, exchange of a microbatch
void LayoutEstimator::add_state(Estimate& estimate, const Layout& layout, const Elements& elements,
                                const PassTimes& times, const PassTimes& exchange) const {
  const offload::Rates rates = machine_rates(machine_facts(deck_), layout.shape);
  const bool bf16_wire = read(deck_, &ParallelConfig::bf16_gradients);
  const layers::StateType type = inputs::read<layers::StateType>(deck_);
  const layers::Precision precision{inputs::read(deck_, &inputs::TrainConfig::dtype)};
  const auto weight = static_cast<double>(execution::size_bytes(precision.storage));
  const auto gradient = static_cast<double>(execution::size_bytes(type.gradient(precision)));
  const double wire = bf16_wire ? 2 : gradient;
  const auto bucket = static_cast<double>(inputs::read(deck_, &ParallelConfig::bucket_elements));
  const layers::Optimizer& optimizer = inputs::read<layers::OptimizerChoice>(deck_).row();
  const bool ema = inputs::read(deck_, &layers::OptimizerConfig::ema_decay) > 0;
  const layers::StateOptions state{.ema = ema, .optimizer = &optimizer, .type = type};
  constexpr auto kStage = parallel::Group::replicated_gradients;
  const int owners = parallel::group_size(layout.shape, kStage);
  const double cuts = parallel::group_size(layout.shape, parallel::Group::tensor);
  double sums_s = 0, gathers_s = 0, tail_s = 0, moved_bytes = 0;
  for (const auto& [group_and_kind, count] : elements.counts) {
    const auto& [group, whole] = group_and_kind;
    const layers::Optimizer& rule = whole ? optimizer : *optimizer.rules().back();
    const parallel::Group which = parallel::gradient_group(group);
    const int ranks = parallel::group_size(layout.shape, which);
    const std::string name(parallel::name(which));
    const double share = static_cast<double>(ranks - 1) / ranks;
    const double messages = std::ceil(count / bucket);
    const auto with_compute_s = [&](const char* kind, double bytes) {
      return messages * rates.with_compute_s(name, kind, share * bytes / messages);
    };
    const auto last_s = [&](const char* kind, double bytes) {
      return rates.link_of(name, kind).time_s(share * bytes);
    };
    if (ranks > 1 && count > 0) {
      sums_s += with_compute_s("reduce_scatter", count * wire);
      gathers_s += with_compute_s("all_gather", count * weight);
      const double last = std::min(bucket, count);
      tail_s += last_s("reduce_scatter", last * wire) + last_s("all_gather", last * weight);
    }
    if (whole) {
      const double cut_off = count / ranks * (cuts - 1) / cuts;  // parts of others' matrices
      moved_bytes += weight * (cut_off + (layout.zero ? cut_off : count * (owners - 1) / owners));
    }
    estimate.persistent_bytes +=
        count * (weight + gradient) + count / ranks * state_bytes(state, precision, rule);
    estimate.optimizer_s += rates.roofline_s(
        {.bytes = count / ranks * (update_bytes(state, precision, rule) + kNormBytes)});
  }
  if (elements.matrix_flops > 0)
    estimate.optimizer_s += std::max(
        rates.roofline_s({.flops = elements.matrix_flops / owners}),
        rates.link_of(std::string(parallel::name(kStage)), "exchange").time_s(moved_bytes));
  const double forward_s = std::max(0.0, times.forward_s - exchange.forward_s);
  const double backward_s = std::max(0.0, times.backward_s + times.weights_s - exchange.backward_s);
  estimate.gradients_s =
      tail_s + std::max(0.0, sums_s - backward_s) + std::max(0.0, gathers_s - forward_s);
}

Estimate LayoutEstimator::estimate(const Layout& layout) {
  Estimate estimate;
  const Cut& cut = this->cut(layout);
  estimate.refused = cut.refused;
  if (!estimate.refused.empty()) return estimate;
  const layers::PipelineShape shape = layout.pipeline();
  try {
    const std::string& pattern = cut_pattern(layout, cut.parts.times);
    const std::vector<layers::Stage> divided = layers::divide(pattern, shape.stages());
    const PassTimes times = slowest(shape, forecast::stage_times(divided, cut.parts.times));
    const PassTimes compute = slowest(shape, forecast::stage_times(divided, cut.parts.compute));
    estimate.compute_s = layout.microbatches * compute.all_s();
    estimate.exchange_s = layout.microbatches * (times.all_s() - compute.all_s());
    const double waited_s = shape.virtual_stages > 1 ? times.all_s() / shape.virtual_stages
                                                     : times.all_s() - 2 * times.weights_s;
    estimate.bubble_s = std::max(0.0, (shape.ranks - 1) * waited_s);
    add_state(estimate, layout, elements(layout, pattern), times,
              slowest(shape, forecast::stage_times(divided, cut.parts.exchange)));
  } catch (const execution::Error& error) {
    if (error.exit() != execution::Exit::usage) throw;
    estimate.refused = error.what();
  }
  return estimate;
}

}  // namespace stowage::forecast
