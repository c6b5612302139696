#include "layers/part_memory.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "layers/balance.hpp"
#include "layers/state.hpp"

namespace stowage::layers {
namespace {

/// The layer that a parameter belongs to ("layers.3.mamba.D"), or -1.
int layer_of(std::string_view parameter) {
  constexpr std::string_view kLayers = "layers.";
  if (!parameter.starts_with(kLayers)) return -1;
  int layer = -1;
  parameter.remove_prefix(kLayers.size());
  std::from_chars(parameter.data(), parameter.data() + parameter.size(), layer);
  return layer;
}

double state_bytes(const Parameter& parameter, Precision precision, const Sharing& sharing) {
  const double wide = static_cast<double>(size_bytes(precision.accumulation()));
  const double moments = (precision.has_master() ? 3 : 2) * wide;
  const int shards = sharing.zero ? sharing.holders(parameter.group).size() : 1;
  return static_cast<double>(parameter.elements()) *
         (static_cast<double>(size_bytes(precision.storage)) + wide + moments / shards);
}

}  // namespace

double PartMemory::over(int stage, int stages, int begin, int end) const {
  if (budget == 0) return 0;
  PartBytes all;
  if (stage == 0) all += embedding;
  for (int i = begin; i < end; ++i) all += layers[static_cast<std::size_t>(i)];
  if (stage == stages - 1) all += head;
  const int kept = std::min(microbatches, stages - stage);
  return std::max(0.0, all.state + kept * all.saved - budget);
}

PartMemory predict_memory(const ModelConfig& config, Precision precision, const StepShape& shape,
                          const parallel::Ranks& ranks, const Sharing& sharing) {
  const Model model(config, precision, 1, ranks);
  PartMemory memory;
  memory.layers.resize(static_cast<std::size_t>(config.layers()));
  memory.microbatches = shape.microbatches;
  const auto of_layer = [&](int layer) -> PartBytes& {
    return memory.layers[static_cast<std::size_t>(layer)];
  };
  for (const Parameter& parameter : model.parameters()) {
    const int layer = layer_of(parameter.name);
    const bool embeds = parameter.name == model.embedding().name;
    (layer >= 0 ? of_layer(layer)
     : embeds   ? memory.embedding
                : memory.head)
        .state += state_bytes(parameter, precision, sharing);
  }
  if (config.tied_embeddings) memory.head.state += memory.embedding.state;  // on both ends
  const execution::PersistentLayout layout =
      lay_out_state(model.parameters(), model.states(), precision, {});
  const Program program = one_microbatch(model, shape, layout);
  std::vector<char> counted(program.tensors().size(), 0);
  for (const execution::Op& op : program.ops())
    for (const Use& use : op.uses) {
      const auto tensor = static_cast<std::size_t>(use.tensor.id);
      const execution::TensorInfo& info = program.tensors()[tensor];
      if (info.lifetime != execution::Lifetime::saved || counted[tensor]) continue;
      counted[tensor] = 1;
      const int scope = enclosing(program, op, "layer");
      const int layer = scope < 0 ? -1 : program.scopes()[static_cast<std::size_t>(scope)].layer;
      const bool embeds = op.name.starts_with("mb0/embedding/");
      (layer >= 0 ? of_layer(layer)
       : embeds   ? memory.embedding
                  : memory.head)
          .saved += static_cast<double>(info.bytes());
    }
  return memory;
}

}  // namespace stowage::layers
