#include "drivers/data/stats.hpp"

#include <algorithm>
#include <cmath>

#include "execution/causal_pairs.hpp"
#include "execution/error.hpp"
#include "forecast/plan/options.hpp"
#include "forecast/plan/read_deck.hpp"
#include "inputs/data/data_section.hpp"
#include "inputs/data/run_data.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/model/flops.hpp"

namespace stowage::drivers {
namespace {

using inputs::Deck;

/// Capacities are multiples of this, so that a little more data fits as well.
constexpr std::int64_t kGranule = 8;

/// The most documents of a microbatch, step by step, and of every microbatch, over one pass.
struct Counts {
  std::vector<std::int64_t> steps, microbatches;
};

Counts count_documents(const Deck& deck, inputs::Loader& loader) {
  Counts counts;
  const std::int64_t microbatches = inputs::read(deck, &inputs::TrainConfig::global_batch_size) /
                                    inputs::read(deck, &inputs::TrainConfig::micro_batch_size);
  for (std::int64_t step = 0; step < loader.steps_per_pass(); ++step, loader.advance()) {
    std::int64_t most = 0;
    for (std::int64_t m = 0; m < microbatches; ++m) {
      counts.microbatches.push_back(loader.documents_of(m));
      most = std::max(most, counts.microbatches.back());
    }
    counts.steps.push_back(most);
  }
  return counts;
}

/// Capacities for the steps' maxima: their P50, P90, P99 and what any step of any pass can need.
std::vector<Proposal> propose(const std::vector<std::int64_t>& steps, std::int64_t most) {
  const Distribution found(steps);
  std::vector<Proposal> proposals;
  for (const int percent : {50, 90, 99, 100}) {
    const std::int64_t wanted = percent == 100 ? most : found.at(percent);
    const std::int64_t capacity = std::min(most, (wanted + kGranule - 1) / kGranule * kGranule);
    if (!proposals.empty() && proposals.back().documents == capacity) continue;
    const auto fit = std::ranges::count_if(steps, [&](std::int64_t n) { return n <= capacity; });
    proposals.push_back({capacity, static_cast<double>(fit) / static_cast<double>(steps.size())});
  }
  return proposals;
}

/// FLOP of training by token of a document, from the lengths of a pass.
double flop_per_token(const Deck& deck, const inputs::Loader& loader) {
  layers::StepWork work;
  std::vector<inputs::Piece> room;
  for (std::size_t i = 0; i < loader.sequences().size(); ++i) {
    const inputs::Sequences& sequences = loader.sequences()[i];
    const double times = loader.share(i) * static_cast<double>(loader.samples()) /
                         static_cast<double>(sequences.count());
    for (std::int64_t s = 0; s < sequences.count(); ++s)
      for (const inputs::Piece& piece : sequences.pieces(s, room)) {
        const auto length = static_cast<double>(piece.tokens);
        work.tokens += times * length;
        work.pairs += times * execution::causal_pairs(length, length);
      }
  }
  return layers::step_flops(forecast::model_config(deck), work).model / work.tokens;
}

PackingStats stats_of(const Deck& deck, inputs::Loader& loader) {
  const inputs::PackingSummary& summary = loader.packing();
  const Counts counts = count_documents(deck, loader);
  return {.packing = deck.get<std::string>(inputs::key(&inputs::DataConfig::packing)),
          .refused = {},
          .summary = inputs::text(summary),
          .efficiency = summary.efficiency(),
          .sequences = loader.samples(),
          .split_documents = summary.split_documents,
          .dropped_documents = summary.dropped_documents,
          .dropped_tokens = summary.dropped_tokens,
          .documents_per_microbatch = Distribution(counts.microbatches).quantiles,
          .flop_per_token = flop_per_token(deck, loader),
          .proposals = propose(counts.steps, loader.max_documents())};
}

/// The deck with another packing; what only packing by whole documents knows is left out.
Deck with_packing(const inputs::CommandLine& command, const std::string& packing) {
  inputs::CommandLine other = command;
  other.overrides.push_back(inputs::override_of(&inputs::DataConfig::packing, packing));
  if (!inputs::packs_whole(inputs::packing(packing)))
    other.overrides.push_back(inputs::override_of(&inputs::DataConfig::document_multiple, "1"));
  return forecast::read_deck(other, false);
}

/// Adds times to the proposals of the last packing.
void predict(const Deck& deck, inputs::Loader& loader, DataStats& stats) {
  std::vector<Proposal>& proposals = stats.packings.back().proposals;
  std::vector<std::int64_t> capacities;
  for (const Proposal& proposal : proposals) capacities.push_back(proposal.documents);
  const auto times = step_times(deck, loader, capacities, stats.unpredicted);
  for (std::size_t i = 0; i < times.size(); ++i) proposals[i].times = times[i];
}

}  // namespace

Distribution::Distribution(std::vector<std::int64_t> values) {
  STOWAGE_ASSERT(!values.empty(), "a distribution of nothing");
  std::ranges::sort(values);
  const auto last = static_cast<double>(values.size());
  for (int percent = 0; percent <= 100; ++percent) {
    const auto rank = static_cast<std::int64_t>(std::ceil(percent / 100.0 * last));
    quantiles.push_back(values[std::max<std::int64_t>(rank, 1) - 1]);
  }
}

DataStats data_stats(const inputs::CommandLine& command) {
  const Deck deck = forecast::read_deck(command);
  const inputs::Data own = open_data(deck);
  DataStats stats;
  stats.chosen = deck.get<std::string>(inputs::key(&inputs::DataConfig::packing));
  std::vector<std::int64_t> lengths;
  for (const auto& [name, tokens] : own.sources) {
    stats.source += (stats.source.empty() ? "" : ", ") + tokens->description();
    stats.tokens += tokens->tokens();
    stats.documents += tokens->documents();
    const auto offsets = tokens->document_offsets();
    for (std::size_t d = 0; d + 1 < offsets.size(); ++d)
      lengths.push_back(offsets[d + 1] - offsets[d]);
  }
  stats.lengths = Distribution(std::move(lengths)).quantiles;
  for (const char* packing : {"documents", "first_fit", "best_fit", "none"}) {
    if (packing == stats.chosen) {
      const inputs::LoaderPosition start = own.train->position();
      stats.packings.push_back(stats_of(deck, *own.train));
      own.train->seek(start);
      predict(deck, *own.train, stats);
      continue;
    }
    try {
      const Deck other = with_packing(command, packing);
      const inputs::Data data = open_data(other);
      stats.packings.push_back(stats_of(other, *data.train));
    } catch (const execution::Error& error) {
      if (error.exit() != execution::Exit::usage) throw;
      stats.packings.push_back({});
      stats.packings.back().packing = packing;
      stats.packings.back().refused = error.what();
    }
  }
  return stats;
}

}  // namespace stowage::drivers
