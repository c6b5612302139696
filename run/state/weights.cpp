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

/// Elements of one floating dtype as those of another, rounded to nearest even.
std::vector<std::byte> converted(std::span<const std::byte> from, Dtype given, Dtype wanted) {
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

bool is_parameter(const WholeTensors& tensors, const std::string& name) {
  return tensors.info(name).lifetime == execution::Lifetime::parameter;
}

}  // namespace

std::vector<results::TensorSpec> weights_of(const inputs::Deck& deck) {
  const layers::Precision precision{inputs::read(deck, &inputs::TrainConfig::dtype)};
  const layers::Model model(forecast::model_config(deck), precision, 1.0);
  std::vector<results::TensorSpec> all;
  for (const layers::Parameter& parameter : model.parameters())
    all.push_back({parameter.name, precision.storage, parameter.shape});
  for (const execution::TensorInfo& state : model.states())
    all.push_back({state.name, state.buffers[0].dtype, state.buffers[0].shape});
  return all;
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
    if (const std::string master = layers::master_name(spec.name); known.contains(master))
      places.push_back(master);
    targets.push_back({spec, [&tensors, dtype = spec.dtype, places](
                                 std::size_t offset, std::span<const std::byte> from) {
                         for (const std::string& place : places) {
                           const Dtype wanted = tensors.info(place).buffers[0].dtype;
                           tensors.write(place,
                                         offset / execution::size_bytes(dtype) *
                                             execution::size_bytes(wanted),
                                         converted(from, dtype, wanted));
                         }
                       }});
  }
  if (!missing.empty())
    throw_usage("{}: has no tensor '{}' of the deck's model", origin, *missing.begin());
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
