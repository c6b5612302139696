// Rows of [optim].
#include "layers/step/step_section.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "inputs/data/run_section.hpp"
#include "inputs/deck/check.hpp"
#include "kernels/optimizer/stochastic_rounding.hpp"
#include "layers/step/parameter_factors.hpp"

namespace stowage::inputs {
namespace {

constexpr std::int64_t kMostMuonSteps = 100;

/// "moments in bf16; ...": what the formats are, and their names.
std::string format_help() {
  std::string all;
  for (const layers::StateFormat* format : layers::kStateFormats)
    all += fmt::format("{}{}: {}", all.empty() ? "" : "; ", format->name, format->help);
  return all;
}

}  // namespace

using execution::Dtype;
using kernels::SpikeRule;
using layers::LearningRate;
using layers::MuonConfig;
using layers::OptimizerChoice;
using layers::OptimizerConfig;
using layers::StateType;

template <>
std::vector<Row<LearningRate>> rows<LearningRate>() {
  return {
      row(&LearningRate::lr, {.key = "optim.lr",
                              .range = at_least(0),
                              .numerics = true,
                              .help = "Largest learning rate."}),
      row(&LearningRate::min_lr, {.key = "optim.min_lr",
                                  .range = at_least(0),
                                  .numerics = true,
                                  .help = "Learning rate at and after the end of the decay."}),
      row(&LearningRate::warmup_steps, {.key = "optim.warmup_steps",
                                        .unit = "steps",
                                        .range = between(0, kMostSteps),
                                        .numerics = true,
                                        .help = "Steps of linear warm-up."}),
      row(&LearningRate::shape,
          {.key = "optim.schedule",
           .numerics = true,
           .help = "After warm-up: half a cosine to min_lr, warm-up-stable-decay, or constant lr."},
          {{"cosine", LearningRate::Shape::cosine},
           {"wsd", LearningRate::Shape::wsd},
           {"constant", LearningRate::Shape::constant}}),
      row(&LearningRate::decay_steps,
          {.key = "optim.decay_steps",
           .unit = "steps",
           .range = between(0, kMostSteps),
           .numerics = true,
           .help = "Steps over which the rate falls to min_lr: step decay_steps + 1 is the first "
                   "that has "
                   "it. 0: run.steps.",
           .derived = [](const Deck& deck) { return read(deck, &RunConfig::steps); }}),
      row(&LearningRate::wsd_decay_steps,
          {.key = "optim.wsd_decay_steps",
           .unit = "steps",
           .range = between(0, kMostSteps),
           .numerics = true,
           .help =
               "Steps of the linear decay that ends schedule wsd. The last of d steps has min_lr + "
               "(lr - min_lr) / d, so a decay of one step does nothing. 0: a tenth of decay_steps, "
               "rounded up.",
           .derived =
               [](const Deck& deck) { return (read(deck, &LearningRate::decay_steps) + 9) / 10; }}),
  };
}

template <>
std::vector<Row<OptimizerChoice>> rows<OptimizerChoice>() {
  return {
      row(&OptimizerChoice::rule,
          {.key = "optim.optimizer",
           .numerics = true,
           .help = "AdamW of all parameters, or Muon of matrices between hidden rows and AdamW of "
                   "all others: the embedding, the head, norms, vectors, routers, convolutions."},
          {{"adamw", OptimizerChoice::Rule::adamw}, {"muon", OptimizerChoice::Rule::muon}}),
  };
}

template <>
std::vector<Row<MuonConfig>> rows<MuonConfig>() {
  return {
      row(&MuonConfig::momentum, {.key = "optim.muon_momentum",
                                  .range = from_to_below(0, 1),
                                  .numerics = true,
                                  .help = "Decay of Muon's momentum, m = muon_momentum m + g."}),
      row(&MuonConfig::nesterov,
          {.key = "optim.muon_nesterov",
           .numerics = true,
           .help = "The direction is g + muon_momentum m, of the new m; else m."}),
      row(&MuonConfig::steps, {.key = "optim.muon_steps",
                               .range = between(1, kMostMuonSteps),
                               .numerics = true,
                               .help = "Newton-Schulz iterations."}),
      row(&MuonConfig::coefficients,
          {.key = "optim.muon_coefficients",
           .numerics = true,
           .help = "a, b and c of an iteration, X = (a I + b A + c A A) X with A = X X^T."}),
      row(&MuonConfig::scale,
          {.key = "optim.muon_scale",
           .numerics = true,
           .help =
               "What an update of so many rows and columns is multiplied by. rms: 0.2 "
               "sqrt(max(rows, columns)), the RMS of AdamW's, with its learning rate and decay. "
               "aspect: sqrt(max(1, rows / columns))."},
          {{"rms", MuonConfig::Scale::rms}, {"aspect", MuonConfig::Scale::aspect}}),
      row(&MuonConfig::split,
          {.key = "optim.muon_split",
           .numerics = true,
           .help =
               "What is a matrix by itself of a weight that is several projections, such as q, k "
               "and v, or z, x, B, C and dt of a Mamba layer. none: all of it. projections: each "
               "one. heads: each head of those that have heads."},
          {{"none", MuonConfig::Split::none},
           {"projections", MuonConfig::Split::projections},
           {"heads", MuonConfig::Split::heads}}),
      row(&MuonConfig::lr_factor, {.key = "optim.muon_lr_factor",
                                   .range = above(0),
                                   .numerics = true,
                                   .help = "Factor of the learning rate of Muon's matrices."}),
  };
}

template <>
std::vector<Row<OptimizerConfig>> rows<OptimizerConfig>() {
  std::vector<Row<OptimizerConfig>> all = {
      row(&OptimizerConfig::beta1, {.key = "optim.adam_beta1",
                                    .range = from_to_below(0, 1),
                                    .numerics = true,
                                    .help = "Decay of the first moment."}),
      row(&OptimizerConfig::beta2, {.key = "optim.adam_beta2",
                                    .range = from_to_below(0, 1),
                                    .numerics = true,
                                    .help = "Decay of the second moment."}),
      row(&OptimizerConfig::epsilon, {.key = "optim.adam_eps",
                                      .range = above(0),
                                      .numerics = true,
                                      .help = "Added to the root of the second moment."}),
      row(&OptimizerConfig::weight_decay,
          {.key = "optim.weight_decay",
           .range = at_least(0),
           .numerics = true,
           .help =
               "Decoupled decay of matrices; vectors and the weights of Mamba layers' convolutions "
               "are never decayed."}),
      row(&OptimizerConfig::lr_factors,
          {.key = "optim.lr_factors",
           .numerics = true,
           .help = "Factors of the learning rate by the parameter's name, as "
                   "\"layers.*.experts.* 0.5\"; * stands for any letters, the last line that "
                   "matches counts. 0: the "
                   "parameter is frozen, and its gradient is not part of the norm."}),
      row(&OptimizerConfig::decay_factors,
          {.key = "optim.decay_factors",
           .numerics = true,
           .help = "Factors of optim.weight_decay by the parameter's name, in the same form, in "
                   "place of 1 of matrices and 0 of all else."}),
      row(&OptimizerConfig::clip, {.key = "optim.clip_grad",
                                   .range = at_least(0),
                                   .numerics = true,
                                   .help = "Largest global gradient norm. 0: no clipping."}),
      row(&OptimizerConfig::ema_decay,
          {.key = "optim.ema_decay",
           .range = from_to_below(0, 1),
           .numerics = true,
           .help = "Keep an exponential moving average of the weights, in the type of sums: after "
                   "each good step ema = ema_decay ema + (1 - ema_decay) weight, from the initial "
                   "weights on. It is 4 bytes a parameter, and the state ema of offload.states and "
                   "of checkpoints. 0: none."}),
  };
  append(all, &OptimizerConfig::muon);
  return all;
}

template <>
std::vector<Row<StateType>> rows<StateType>() {
  static const std::string help =
      "How moments and momentum are stored. " + format_help() + ". An update is computed in fp32.";
  return {row(&StateType::format, {.key = "optim.state_dtype", .numerics = true, .help = help},
              words_of(layers::kStateFormats)),
          row(&StateType::gradients,
              {.key = "optim.gradient_dtype",
               .numerics = true,
               .help = "Type in which the gradients of microbatches are added up. bf16: each is "
                       "made in the type of sums and added with stochastic rounding, on one rank. "
                       "fp32: the type of sums."},
              {{"fp32", Dtype::fp32}, {"bf16", Dtype::bf16}})};
}

template <>
std::vector<Row<SpikeRule>> rows<SpikeRule>() {
  return {
      row(&SpikeRule::factor,
          {.key = "optim.spike_factor",
           .range = zero_or_at_least(1),
           .numerics = true,
           .help =
               "Skip a step whose gradient norm, before clipping, is above so many times the mean "
               "norm of the steps before. 0: steps are skipped only if the norm is not finite."}),
      row(&SpikeRule::window,
          {.key = "optim.spike_window",
           .unit = "steps",
           .range = between(1, kMostInt),
           .numerics = true,
           .help = "Steps of the mean that spike_factor goes by: of all good steps while there are "
                   "fewer, then each new one has a weight of 1/spike_window."}),
      row(&SpikeRule::most_in_a_row, {.key = "optim.spikes_in_a_row",
                                      .unit = "steps",
                                      .range = between(1, kMostInt),
                                      .numerics = true,
                                      .help = "Most steps that spike_factor skips one behind the "
                                              "other: the next one is taken, and "
                                              "the mean begins anew with its norm."}),
  };
}

}  // namespace stowage::inputs

namespace stowage::layers {

void check(const LearningRate& schedule, const inputs::Deck& deck) {
  using inputs::key;
  if (schedule.min_lr > schedule.lr)
    execution::throw_usage("{} must be at most {}", cite(deck, &LearningRate::min_lr),
                           cite(deck, &LearningRate::lr));
  const std::string_view decay = key(&LearningRate::decay_steps);
  if (schedule.shape != LearningRate::Shape::constant)
    check_at_most(deck, key(&LearningRate::warmup_steps), decay);
  if (schedule.shape == LearningRate::Shape::wsd)
    check_at_most(deck, key(&LearningRate::wsd_decay_steps), decay);
}

namespace {

/// Moments that are rounded to nearest keep their decay.
void check_nearest(const inputs::Deck& deck) {
  constexpr double kMostBeta = 1 - 0x1p-7;  // else a decay is less than half a unit of bf16
  for (const auto member : {&OptimizerConfig::beta1, &OptimizerConfig::beta2})
    if (inputs::read(deck, member) > kMostBeta)
      execution::throw_usage("{} needs {} of at most {}: bf16 would lose its decay",
                             cite(deck, &StateType::format), cite(deck, member), kMostBeta);
  if (inputs::read(deck, &OptimizerChoice::rule) == OptimizerChoice::Rule::muon &&
      inputs::read(deck, &MuonConfig::momentum) > kMostBeta)
    execution::throw_usage("{} needs {} of at most {}: bf16 would lose its decay",
                           cite(deck, &StateType::format), cite(deck, &MuonConfig::momentum),
                           kMostBeta);
}

/// First moments in units of the root of second ones are in e4m3's range: |m| <= sqrt(v) (1 - b1) /
/// sqrt((1 - b2) (1 - b1^2 / b2)) for any gradients, by Cauchy's inequality.
void check_ratio(const inputs::Deck& deck) {
  const double b1 = inputs::read(deck, &OptimizerConfig::beta1);
  const double b2 = inputs::read(deck, &OptimizerConfig::beta2);
  const double rest = (1 - b2) * (b2 - b1 * b1);
  if (rest <= 0 || (1 - b1) * std::sqrt(b2 / rest) > kernels::kMostMomentRatio)
    execution::throw_usage(
        "{} stores first moments of at most {} roots of the second; {} and {} make larger ones; "
        "allowed: such as 0.9 and 0.95, 0.9 and 0.999",
        cite(deck, &StateType::format), kernels::kMostMomentRatio,
        cite(deck, &OptimizerConfig::beta1), cite(deck, &OptimizerConfig::beta2));
}

}  // namespace

void check(const StateType& type, const inputs::Deck& deck) {
  if (type.format->first == execution::Dtype::bf16) check_nearest(deck);
  if (type.format->first == execution::Dtype::e4m3) check_ratio(deck);
}

void check(const OptimizerConfig& config, const inputs::Deck& deck) {
  if (config.muon.coefficients.size() != 3)
    execution::throw_usage("{} has {} numbers; allowed: three, a, b and c",
                           cite(deck, &MuonConfig::coefficients), config.muon.coefficients.size());
  if (!std::ranges::all_of(config.muon.coefficients, [](double c) { return std::abs(c) <= 1000; }))
    execution::throw_usage("{}: allowed: three numbers in [-1000, 1000]",
                           cite(deck, &MuonConfig::coefficients));
  for (const auto member : {&OptimizerConfig::lr_factors, &OptimizerConfig::decay_factors})
    for (const std::string& line : config.*member)
      if (!read_parameter_factor(line))
        execution::throw_usage(
            "{}: '{}' is no factor of parameters; allowed: a pattern of their names and a number "
            "from 0 to 1000, as \"layers.*.experts.* 0.5\"",
            cite(deck, member), line);
}

}  // namespace stowage::layers
