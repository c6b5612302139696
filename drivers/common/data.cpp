#include "drivers/common/data.hpp"

#include <algorithm>

#include "execution/error.hpp"
#include "inputs/data/digest.hpp"

namespace stowage::drivers {
namespace {

using inputs::Deck;

std::unique_ptr<inputs::TokenSource> open(const Deck& deck, const std::string& path) {
  return inputs::open_source(
      {.kind = inputs::source_kind(deck.get<std::string>("data.source")),
       .path = path,
       .vocab_size = deck.get<std::int64_t>("model.vocab_size"),
       .document_token = deck.get<std::int64_t>("data.document_token"),
       .seed = static_cast<std::uint64_t>(deck.get<std::int64_t>("run.seed")),
       .synthetic_tokens = deck.get<std::int64_t>("data.synthetic_tokens"),
       .synthetic_document_length = deck.get<std::int64_t>("data.synthetic_document_length"),
       .synthetic_lengths = deck.get<std::vector<std::int64_t>>("data.synthetic_lengths"),
       .mask = inputs::mask_use(deck.get<std::string>("data.mask"))});
}

/// A state that goes on from one document to the next is never what was meant.
void require_boundaries(const Deck& deck, const inputs::TokenSource& source) {
  if (deck.get<std::string>("model.pattern").find('M') == std::string::npos) return;
  if (!source.knows_documents()) {
    execution::throw_usage(
        "{}: where its documents end is not known, and the state of the Mamba layers of {} would "
        "go "
        "on from one to the next: give data.document_token, the token that starts a document",
        source.description(), deck.cite("model.pattern"));
  }
  if (deck.get<std::string>("data.packing") == "none" && source.documents() > 1) {
    execution::throw_usage(
        "{}: the state of the Mamba layers of {} would go on through the {} documents of {}; "
        "allowed: \"documents\", \"first_fit\", \"best_fit\"",
        deck.cite("data.packing"), deck.cite("model.pattern"), source.documents(),
        source.description());
  }
}

inputs::SequenceOptions sequence_options(const Deck& deck) {
  const std::int64_t sequences = deck.get<std::int64_t>("train.micro_batch_size");
  return {.seq_length = deck.get<std::int64_t>("train.seq_length"),
          .packing = inputs::packing(deck.get<std::string>("data.packing")),
          .window = deck.get<std::int64_t>("data.packing_window"),
          .split_long = deck.get<std::string>("data.long_documents") == "split",
          .document_multiple = deck.get<std::int64_t>("data.document_multiple"),
          .max_documents = deck.get<std::int64_t>("data.max_documents") / sequences};
}

/// That the first step or one of the `more` behind it has a token to predict.
void require_target(inputs::Loader& loader, std::int64_t more) {
  const inputs::LoaderPosition start = loader.position();
  (void)loader.pass_untargeted(more);
  loader.seek(start);
}

inputs::LoaderOptions loader_options(const Deck& deck, parallel::SequencePart part) {
  return {.sequences = sequence_options(deck),
          .micro_batch_size = deck.get<std::int64_t>("train.micro_batch_size"),
          .global_batch_size = deck.get<std::int64_t>("train.global_batch_size"),
          .rank = part.index,
          .ranks = part.parts,
          .shuffle = true,
          .seed = static_cast<std::uint64_t>(deck.get<std::int64_t>("run.seed"))};
}

}  // namespace

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
  const std::int64_t whole = held_out->samples() / global_batch;
  return batches > 0 ? std::min(batches, whole) : whole;
}

Data open_data(const Deck& deck, parallel::SequencePart part) {
  Data data;
  data.source = open(deck, deck.get<std::string>("data.path"));
  const std::string& validation_path = deck.get<std::string>("data.validation_path");
  inputs::Split parts;
  const inputs::TokenSource* held_out = data.source.get();
  if (validation_path.empty()) {
    parts = inputs::split(*data.source, deck.get<double>("data.held_out_fraction"));
  } else {
    data.validation_source = open(deck, validation_path);
    held_out = data.validation_source.get();
    parts = {{0, data.source->tokens()}, {0, held_out->tokens()}};
  }
  require_boundaries(deck, *data.source);
  if (data.validation_source) require_boundaries(deck, *data.validation_source);
  inputs::LoaderOptions options = loader_options(deck, part);
  data.train = std::make_unique<inputs::Loader>(*data.source, parts.train, options);
  data.global_batch = options.global_batch_size;
  require_target(*data.train, data.train->steps_per_pass());
  options.shuffle = false;
  if (parts.held_out.size() <= options.sequences.seq_length * options.global_batch_size)
    return data;
  data.held_out = std::make_unique<inputs::Loader>(*held_out, parts.held_out, options);
  if (data.held_out->samples() < options.global_batch_size) data.held_out.reset();
  if (data.held_out)
    require_target(*data.held_out, data.evaluated(deck.get<std::int64_t>("eval.steps")) - 1);
  return data;
}

std::vector<std::int64_t> capacities(const Deck& deck, std::int64_t max_documents) {
  std::vector<std::int64_t> all = deck.get<std::vector<std::int64_t>>("graphs.max_packed_seqs");
  const std::int64_t wanted = deck.get<std::int64_t>("data.max_documents");
  if (all.empty() && wanted > 0) all.push_back(wanted);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::erase_if(all, [&](std::int64_t capacity) { return capacity >= max_documents; });
  all.push_back(max_documents);
  return all;
}

}  // namespace stowage::drivers
