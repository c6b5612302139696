#include "drivers/data/documents.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <vector>

#include "execution/error.hpp"
#include "forecast/plan/read_deck.hpp"
#include "inputs/data/run_data.hpp"
#include "inputs/data/run_section.hpp"

namespace stowage::drivers {
namespace {

void require_steps(const char* option, std::int64_t value) {
  if (value >= 1 && value <= std::numeric_limits<std::int32_t>::max()) return;
  throw execution::Error(execution::Exit::usage,
                         fmt::format("{} = {}: allowed are 1 to {}", option, value,
                                     std::numeric_limits<std::int32_t>::max()));
}

/// Lengths of the documents of a microbatch of the current step.
std::vector<std::int64_t> lengths_of(const inputs::Loader& loader, std::int64_t microbatch,
                                     std::int64_t tokens) {
  std::vector<std::int32_t> ids(tokens), targets(tokens), starts(loader.max_documents() + 1);
  const std::int64_t documents = loader.fill(microbatch, {ids, targets, starts}).documents;
  std::vector<std::int64_t> lengths;
  for (std::int64_t d = 0; d < documents; ++d) lengths.push_back(starts[d + 1] - starts[d]);
  return lengths;
}

}  // namespace

void print_documents(const inputs::CommandLine& command, StepRange steps) {
  require_steps("--first-step", steps.first);
  require_steps("--steps", steps.count);
  const inputs::Deck deck = forecast::read_deck(command);
  const inputs::Data data = open_data(deck);
  inputs::Loader& loader = *data.train;
  const std::int64_t tokens = inputs::read(deck, &inputs::TrainConfig::micro_batch_size) *
                              inputs::read(deck, &inputs::TrainConfig::seq_length);
  for (std::int64_t step = 1; step < steps.first + steps.count; ++step, loader.advance()) {
    (void)loader.pass_untargeted(loader.steps_per_pass());
    if (step < steps.first) continue;
    for (std::int64_t m = 0; m < loader.microbatches(); ++m)
      fmt::print("{{\"step\": {}, \"microbatch\": {}, \"lengths\": [{}]}}\n", step, m,
                 fmt::join(lengths_of(loader, m, tokens), ", "));
  }
}

}  // namespace stowage::drivers
