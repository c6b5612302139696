#include "forecast/layouts/training_cost.hpp"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "execution/causal_pairs.hpp"
#include "execution/error.hpp"
#include "forecast/plan/options.hpp"
#include "forecast/rates/machine_section.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/model/flops.hpp"
#include "layers/model/model.hpp"
#include "layers/recording/config_section.hpp"
#include "results/format.hpp"

namespace stowage::forecast {
namespace {

constexpr std::string_view kThousands = " KMBT";
constexpr double kSecondsOfDay = 86400;

}  // namespace

std::string count_text(double count) {
  std::size_t power = 0;
  while (count >= 999.5 && power + 1 < kThousands.size()) count /= 1000, ++power;
  return power == 0 ? fmt::format("{:.0f}", count)
                    : fmt::format("{:.3g} {}", count, kThousands[power]);
}

ModelSize model_size(const inputs::Deck& deck) {
  const layers::Model model = whole_model(deck);
  const layers::ModelConfig& config = model.config();
  ModelSize size;
  for (const layers::Parameter& parameter : model.parameters()) {
    const auto elements = static_cast<double>(parameter.elements());
    size.parameters += elements;
    size.active +=
        parameter.group == "expert" ? elements * config.moe.topk / config.moe.experts : elements;
  }
  const auto tokens = static_cast<double>(inputs::read(deck, &inputs::TrainConfig::seq_length));
  size.flops_per_token =
      layers::step_flops(config, {tokens, execution::causal_pairs(tokens, tokens)}).model / tokens;
  return size;
}

std::string ModelSize::text() const {
  return fmt::format("# {} parameters, of which a token meets {}; {} a token\n",
                     count_text(parameters), count_text(active),
                     results::quantity(flops_per_token, "FLOP"));
}

void ModelSize::add_to(nlohmann::ordered_json& json) const {
  json["parameters"] = parameters;
  json["active_parameters"] = active;
  json["model_flops_per_token"] = flops_per_token;
}

TrainingCost training_cost(const inputs::Deck& deck, const ModelSize& model, std::int64_t ranks,
                           double step_s, double tokens) {
  const auto train = inputs::read<inputs::TrainConfig>(deck);
  const double tokens_per_s =
      static_cast<double>(train.global_batch_size) * static_cast<double>(train.seq_length) / step_s;
  const double peak = inputs::read(deck, &MachineConfig::peak_flops_per_s);
  const double flops_per_s = model.flops_per_token * tokens_per_s / static_cast<double>(ranks);
  return {.ranks = ranks,
          .tokens_per_s = tokens_per_s,
          .mfu = peak > 0 ? flops_per_s / peak : 0,
          .tokens = tokens,
          .power_w = inputs::read(deck, &MachineConfig::power_w)};
}

std::string TrainingCost::speed_text() const {
  std::string text = fmt::format("{} tokens/s", count_text(tokens_per_s));
  if (mfu > 0) text += fmt::format(", MFU {:.1f} %", 100 * mfu);
  return text;
}

std::string TrainingCost::tokens_text() const {
  if (tokens == 0) return {};
  std::string text = fmt::format("# {} tokens: {:.3g} days, {} GPU-hours", count_text(tokens),
                                 time_s() / kSecondsOfDay, count_text(gpu_hours()));
  if (power_w > 0)
    text += fmt::format(", {} kWh of devices at {:.0f} W", count_text(energy_kwh()), power_w);
  return text + "\n";
}

void TrainingCost::add_to(nlohmann::ordered_json& json) const {
  json["tokens_per_s"] = tokens_per_s;
  if (mfu > 0) json["mfu"] = mfu;
  if (tokens == 0) return;
  json["tokens"] = tokens;
  json["days"] = time_s() / kSecondsOfDay;
  json["gpu_hours"] = gpu_hours();
  if (power_w > 0) json["energy_kwh"] = energy_kwh();
}

double parse_tokens(const std::string& text) {
  std::size_t read = 0;
  double tokens = 0;
  try {
    tokens = std::stod(text, &read);
  } catch (const std::exception&) {
    read = 0;
  }
  std::string_view rest = std::string_view(text).substr(read);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const std::size_t power = rest.empty() ? 0 : kThousands.find(rest.front(), 1);
  if (read == 0 || rest.size() > 1 || power == std::string_view::npos || !(tokens > 0) ||
      !std::isfinite(tokens))
    execution::throw_usage("--tokens {}: must be a number above 0, as 300e9, 300B or 1T", text);
  return tokens * std::pow(1000, static_cast<double>(power));
}

}  // namespace stowage::forecast
