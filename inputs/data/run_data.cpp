#include "inputs/data/run_data.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "execution/error.hpp"
#include "inputs/data/data_section.hpp"
#include "inputs/data/digest.hpp"
#include "inputs/data/run_section.hpp"
#include "inputs/deck/layer_kinds.hpp"

namespace stowage::inputs {
namespace {

// Of the model, which is above this room.
constexpr std::string_view kPattern = "model.pattern";
constexpr std::string_view kVocabulary = "model.vocab_size";

std::unique_ptr<TokenSource> open(const Deck& deck, const DataConfig& data,
                                  const std::string& path) {
  return open_source({.kind = data.source,
                      .path = path,
                      .vocab_size = deck.get<std::int64_t>(kVocabulary),
                      .document_token = data.document_token,
                      .seed = static_cast<std::uint64_t>(read(deck, &RunConfig::seed)),
                      .synthetic_tokens = data.synthetic_tokens,
                      .synthetic_document_length = data.synthetic_document_length,
                      .synthetic_lengths = data.synthetic_lengths,
                      .mask = data.mask});
}

/// A state that goes on from one document to the next is never what was meant.
void require_boundaries(const Deck& deck, const TokenSource& source) {
  const std::string recurrent = recurrent_layers(deck.get<std::string>(kPattern));
  if (recurrent.empty()) return;
  if (!source.knows_documents()) {
    execution::throw_usage(
        "{}: where its documents end is not known, and the state of the {} layers of {} would go "
        "on from one to the next: give data.document_token, the token that starts a document",
        source.description(), recurrent, deck.cite(kPattern));
  }
  if (read(deck, &DataConfig::packing) == Packing::none && source.documents() > 1) {
    execution::throw_usage(
        "{}: the state of the {} layers of {} would go on through the {} documents of {}; "
        "allowed: \"documents\", \"first_fit\", \"best_fit\"",
        cite(deck, &DataConfig::packing), recurrent, deck.cite(kPattern), source.documents(),
        source.description());
  }
}

SequenceOptions sequence_options(const DataConfig& data, const TrainConfig& train) {
  return {.seq_length = train.seq_length,
          .packing = data.packing,
          .window = data.packing_window,
          .split_long = data.split_long,
          .document_multiple = data.document_multiple,
          .max_documents = data.max_documents / train.micro_batch_size};
}

/// Seed of the order of held-out sequences, of which eval.steps takes the first. It does not follow
/// run.seed, so that all runs are evaluated on the same ones.
constexpr std::uint64_t kEvaluationOrder = 1;

/// That the first step or one of the `more` behind it has a token to predict.
void require_target(Loader& loader, std::int64_t more) {
  const LoaderPosition start = loader.position();
  (void)loader.pass_untargeted(more);
  loader.seek(start);
}

/// "text a.txt: 38 documents, 9120 tokens".
std::string amount(const std::string& what, const PackingSummary& part) {
  return fmt::format("{}: {} documents, {} tokens", what, part.documents,
                     part.tokens + part.dropped_tokens);
}

LoaderOptions loader_options(const Deck& deck, const DataConfig& data, int rank, int ranks) {
  const auto train = read<TrainConfig>(deck);
  return {.sequences = sequence_options(data, train),
          .micro_batch_size = train.micro_batch_size,
          .global_batch_size = train.global_batch_size,
          .rank = rank,
          .ranks = ranks,
          .shuffle = true,
          .seed = static_cast<std::uint64_t>(read(deck, &RunConfig::seed))};
}

}  // namespace

std::string Data::text() const { return amount(source->description(), train->packing()); }

std::string Data::held_out_text(std::int64_t batches) const {
  if (!held_out) return "nothing that can be evaluated";
  const std::string what = validation_source ? validation_source->description() : "its end";
  const std::int64_t all = held_out->steps_per_pass();
  std::string text = amount(what, held_out->packing());
  text += batches == all ? ", all evaluated"
                         : fmt::format(", of which {} of {} batches are evaluated", batches, all);
  if (const std::int64_t dropped = held_out->packing().dropped_tokens; dropped > 0)
    text += fmt::format(" but {} tokens of documents that data.long_documents drops", dropped);
  return text;
}

std::vector<std::string> Data::files() const {
  std::vector<std::string> all = source->files();
  if (validation_source)
    for (std::string& file : validation_source->files()) all.push_back(std::move(file));
  return all;
}

std::string Data::digest() const {
  const std::string own = inputs::digest(*source);
  return validation_source ? own + "+" + inputs::digest(*validation_source) : own;
}

std::int64_t Data::max_documents() const {
  return std::max(train->max_documents(), held_out ? held_out->max_documents() : 0);
}

std::int64_t Data::max_pairs() const {
  return std::max(train->max_pairs(), held_out ? held_out->max_pairs() : 0);
}

std::int64_t Data::evaluated(std::int64_t batches) const {
  const std::int64_t all = held_out->steps_per_pass();
  return batches > 0 ? std::min(batches, all) : all;
}

Data open_data(const Deck& deck, int rank, int ranks) {
  const auto config = read<DataConfig>(deck);
  Data data;
  data.source = open(deck, config, config.path);
  Split parts;
  const TokenSource* held_out = data.source.get();
  if (config.validation_path.empty()) {
    parts = split(*data.source, config.held_out_fraction);
  } else {
    data.validation_source = open(deck, config, config.validation_path);
    held_out = data.validation_source.get();
    parts = {{0, data.source->tokens()}, {0, held_out->tokens()}};
  }
  require_boundaries(deck, *data.source);
  if (data.validation_source) require_boundaries(deck, *data.validation_source);
  LoaderOptions options = loader_options(deck, config, rank, ranks);
  data.train = std::make_unique<Loader>(*data.source, parts.train, options);
  require_target(*data.train, data.train->steps_per_pass());
  if (parts.held_out.size() < 2) return data;
  const auto batches = read(deck, &EvalConfig::steps);
  options.shuffle = batches > 0;
  options.seed = kEvaluationOrder;
  options.once = true;
  try {
    data.held_out = std::make_unique<Loader>(*held_out, parts.held_out, options);
    require_target(*data.held_out, data.evaluated(batches) - 1);
  } catch (const execution::Error&) {
    if (data.validation_source) throw;
    data.held_out.reset();  // the end of the training data holds nothing to predict
  }
  return data;
}

std::vector<std::int64_t> capacities(const Deck& deck, std::int64_t max_documents) {
  std::vector<std::int64_t> all = read(deck, &DataConfig::graphed_documents);
  const std::int64_t wanted = read(deck, &DataConfig::max_documents);
  if (all.empty() && wanted > 0) all.push_back(wanted);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::erase_if(all, [&](std::int64_t capacity) { return capacity >= max_documents; });
  all.push_back(max_documents);
  return all;
}

}  // namespace stowage::inputs
