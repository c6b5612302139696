#include "run/state/weights.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "execution/error.hpp"
#include "forecast/plan/options.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/model/model.hpp"

namespace stowage::run {

using execution::Dtype;
using execution::throw_usage;

namespace {

constexpr std::string_view kContents = "contents";
constexpr std::string_view kWeights = "weights";
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

bool is_parameter(const WholeTensors& tensors, const std::string& name) {
  return tensors.info(name).lifetime == execution::Lifetime::parameter;
}

/// A tensor that goes into several of a trainer, each of its own dtype.
results::TensorTarget into(const WholeTensors& tensors, const results::TensorSpec& spec,
                           std::vector<std::string> places) {
  return {spec, [&tensors, dtype = spec.dtype, places](std::size_t offset,
                                                       std::span<const std::byte> from) {
            for (const std::string& place : places) {
              const Dtype wanted = tensors.info(place).buffers[0].dtype;
              tensors.write(place,
                            offset / execution::size_bytes(dtype) * execution::size_bytes(wanted),
                            converted(from, dtype, wanted));
            }
          }};
}

layers::Model model_of(const inputs::Deck& deck) {
  return {forecast::model_config(deck), {inputs::read(deck, &inputs::TrainConfig::dtype)}, 1.0};
}

std::vector<results::TensorSpec> parameters_of(const layers::Model& model) {
  std::vector<results::TensorSpec> all;
  for (const layers::Parameter& parameter : model.parameters())
    all.push_back({parameter.name, model.precision().storage, parameter.shape});
  return all;
}

}  // namespace

std::vector<results::TensorSpec> weights_of(const inputs::Deck& deck) {
  const layers::Model model = model_of(deck);
  std::vector<results::TensorSpec> all = parameters_of(model);
  for (const execution::TensorInfo& state : model.states())
    all.push_back({state.name, state.buffers[0].dtype, state.buffers[0].shape});
  return all;
}

std::vector<results::TensorSpec> parameters_of(const inputs::Deck& deck) {
  return parameters_of(model_of(deck));
}

Weights weights_called(const std::string& word) {
  if (word == "trained") return Weights::trained;
  if (word == layers::kEma) return Weights::ema;
  throw_usage("--weights {}: allowed: trained, or ema, which optim.ema_decay keeps", word);
}

std::vector<std::byte> converted(std::span<const std::byte> from, Dtype given, Dtype wanted) {
  if (given == wanted) return {from.begin(), from.end()};
  const std::size_t count = from.size() / execution::size_bytes(given);
  std::vector<std::byte> to(count * execution::size_bytes(wanted));
  execution::with_storage_type(given, [&]<class From>() {
    execution::with_storage_type(wanted, [&]<class To>() {
      for (std::size_t i = 0; i < count; ++i) {
        From value;
        std::memcpy(&value, from.data() + i * sizeof(From), sizeof(From));
        // By way of the wider of both: a bf16 is made from a float or a double.
        const To rounded = static_cast<To>(static_cast<execution::Accumulation<From>>(value));
        std::memcpy(to.data() + i * sizeof(To), &rounded, sizeof(To));
      }
    });
  });
  return to;
}

results::CheckpointState weights_state(const inputs::Deck& deck) {
  return {
      .step = 0, .values = {{std::string(kContents), std::string(kWeights)}}, .deck = deck.text()};
}

bool holds_only_weights(const results::CheckpointState& state) {
  return std::any_of(state.values.begin(), state.values.end(), [](const results::Field& field) {
    const auto* text = std::get_if<std::string>(&field.value);
    return field.name == kContents && text != nullptr && *text == kWeights;
  });
}

std::vector<results::TensorTarget> starting_targets(const WholeTensors& tensors,
                                                    std::span<const results::TensorSpec> given,
                                                    const std::string& origin) {
  const std::vector<std::string> names = tensors.names();
  const std::set<std::string> known(names.begin(), names.end());
  std::set<std::string> missing;
  for (const std::string& name : names)
    if (is_parameter(tensors, name)) missing.insert(name);
  std::vector<results::TensorTarget> targets;
  for (const results::TensorSpec& spec : given) {
    if (!known.contains(spec.name))
      throw_usage("{}: tensor '{}' is none of the deck's model", origin, spec.name);
    const execution::BufferInfo& held = tensors.info(spec.name).buffers[0];
    if (held.shape != spec.shape)
      throw_usage("{}: tensor '{}' is {}, the deck's model has ({})", origin, spec.name,
                  spec.description(), fmt::join(held.shape, ", "));
    missing.erase(spec.name);
    std::vector<std::string> places = {spec.name};
    for (const std::string& state :
         {layers::master_name(spec.name), layers::state_name(layers::kEma, spec.name)})
      if (known.contains(state)) places.push_back(state);
    targets.push_back(into(tensors, spec, std::move(places)));
  }
  if (!missing.empty())
    throw_usage("{}: has no tensor '{}' of the deck's model", origin, *missing.begin());
  return targets;
}

std::vector<results::TensorTarget> average_targets(const WholeTensors& tensors,
                                                   std::span<const results::TensorSpec> given) {
  std::vector<results::TensorTarget> targets;
  for (const std::string& name : tensors.names()) {
    if (!layers::is_average(name)) continue;
    const std::string parameter = layers::parameter_of(name);
    auto from =
        std::ranges::find(given, layers::master_name(parameter), &results::TensorSpec::name);
    if (from == given.end()) from = std::ranges::find(given, parameter, &results::TensorSpec::name);
    STOWAGE_ASSERT(from != given.end(), "no weight {}", parameter);
    targets.push_back(into(tensors, *from, {name}));
  }
  return targets;
}

std::vector<results::TensorTarget> averaged_targets(const WholeTensors& tensors,
                                                    std::span<const results::TensorSpec> given,
                                                    const std::string& origin) {
  std::vector<results::TensorTarget> targets;
  for (const std::string& name : tensors.names()) {
    const std::string wanted =
        is_parameter(tensors, name) ? layers::state_name(layers::kEma, name) : name;
    const auto from = std::ranges::find(given, wanted, &results::TensorSpec::name);
    if (from == given.end())
      throw_usage("--weights ema: {} has no tensor '{}'; optim.ema_decay keeps averages", origin,
                  wanted);
    targets.push_back(into(tensors, *from, {name}));
  }
  return targets;
}

void copy_weights(std::span<const results::TensorSource> from,
                  std::span<const results::TensorTarget> to) {
  STOWAGE_ASSERT(from.size() == to.size(), "{} tensors into {}", from.size(), to.size());
  std::vector<std::byte> piece;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::size_t bytes = from[i].spec.bytes();
    for (std::size_t offset = 0; offset < bytes; offset += piece.size()) {
      piece.resize(std::min(kPieceBytes, bytes - offset));
      from[i].read(offset, piece);
      to[i].write(offset, piece);
    }
  }
}

}  // namespace stowage::run
