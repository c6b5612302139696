#include "inputs/data/run_data.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "execution/error.hpp"
#include "inputs/data/data_section.hpp"
#include "inputs/data/digest.hpp"
#include "inputs/data/run_section.hpp"
#include "inputs/data/shuffled_source.hpp"
#include "inputs/deck/layer_kinds.hpp"

namespace stowage::inputs {
namespace {

// Of the model, which is above this room.
constexpr std::string_view kPattern = "model.pattern";
constexpr std::string_view kFurtherPattern = "model.mtp_pattern";
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
  const std::string recurrent =
      recurrent_layers(deck.get<std::string>(kPattern) + deck.get<std::string>(kFurtherPattern));
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

/// ", 41.20 % of the file masked": of the first so many tokens, if there are more.
std::string masked_text(const TokenSource& source) {
  constexpr std::int64_t kMost = std::int64_t{1} << 26, kPiece = std::int64_t{1} << 20;
  const std::int64_t tokens = std::min(source.tokens(), kMost);
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(std::min(tokens, kPiece)));
  std::int64_t predicted = 0;
  for (std::int64_t at = 0; at < tokens; at += kPiece) {
    const auto piece =
        std::span(mask).first(static_cast<std::size_t>(std::min(kPiece, tokens - at)));
    source.read_mask(at, piece);
    predicted += std::ranges::count(piece, 1);
  }
  const double share = 100 - 100 * static_cast<double>(predicted) / static_cast<double>(tokens);
  return tokens == source.tokens()
             ? fmt::format(", {:.2f} % of the file masked", share)
             : fmt::format(", {:.2f} % of its first {} tokens masked", share, tokens);
}

/// The files of a deck that names one or several.
std::vector<NamedPath> named_paths(const std::vector<std::string>& several,
                                   const std::string& one) {
  if (several.empty()) return {{{}, one}};
  std::vector<NamedPath> all;
  for (const std::string& item : several) all.push_back(named_path(item));
  return all;
}

/// @throws Error (exit 2) if the batches that are evaluated have nothing to predict
void add_held_out(Data& data, Data::HeldOut set, const LoaderPart& part,
                  const LoaderOptions& options, std::int64_t batches) {
  set.loader = std::make_unique<Loader>(std::vector{part}, options);
  require_target(*set.loader, set.evaluated(batches) - 1);
  data.held_out.push_back(std::move(set));
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

std::int64_t Data::HeldOut::evaluated(std::int64_t batches) const {
  const std::int64_t all = loader->steps_per_pass();
  return batches > 0 ? std::min(batches, all) : all;
}

std::string Data::HeldOut::text(std::int64_t batches) const {
  std::string text = name.empty() ? "" : name + " ";
  text += amount(own ? own->description() : "its end", loader->packing());
  if (!own) text += fmt::format(" ({:.2f} % of all)", 100 * share);
  const std::int64_t taken = evaluated(batches), all = loader->steps_per_pass();
  text += taken == all ? ", all evaluated"
                       : fmt::format(", of which {} of {} batches are evaluated", taken, all);
  if (const std::int64_t dropped = loader->packing().dropped_tokens; dropped > 0)
    text += fmt::format(" but {} tokens of documents that data.long_documents drops", dropped);
  return text;
}

std::string Data::text() const {
  std::string text;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (i > 0) text += "; ";
    if (!sources[i].name.empty())
      text += fmt::format("{} {:.4g} % ", sources[i].name, 100 * train->share(i));
    const TokenSource& own = shuffled.empty() ? *sources[i].tokens : *shuffled[i];
    text += amount(own.description(), train->sequences()[i].summary());
    if (own.masked()) text += masked_text(*sources[i].tokens);
  }
  return text;
}

std::string Data::held_out_text(std::int64_t batches) const {
  if (held_out.empty()) return "nothing that can be evaluated";
  std::string text;
  for (const HeldOut& set : held_out) text += (text.empty() ? "" : "; ") + set.text(batches);
  return text;
}

std::vector<std::string> Data::files() const {
  std::vector<std::string> all;
  const auto add = [&](const TokenSource& tokens) {
    for (std::string& file : tokens.files()) all.push_back(std::move(file));
  };
  for (const Source& source : sources) add(*source.tokens);
  for (const HeldOut& set : held_out)
    if (set.own) add(*set.own);
  return all;
}

std::string Data::digest() const {
  std::string all;
  const auto add = [&](const TokenSource& tokens) {
    all += (all.empty() ? "" : "+") + inputs::digest(tokens);
  };
  for (const Source& source : sources) add(*source.tokens);
  for (const HeldOut& set : held_out)
    if (set.own) add(*set.own);
  return all;
}

std::int64_t Data::max_documents() const {
  std::int64_t most = train->max_documents();
  for (const HeldOut& set : held_out) most = std::max(most, set.loader->max_documents());
  return most;
}

std::int64_t Data::max_pairs() const {
  std::int64_t most = train->max_pairs();
  for (const HeldOut& set : held_out) most = std::max(most, set.loader->max_pairs());
  return most;
}

Data open_data(const Deck& deck, int rank, int ranks) {
  const auto config = read<DataConfig>(deck);
  Data data;
  for (const NamedPath& file : named_paths(config.mix, config.path))
    data.sources.push_back({file.name, open(deck, config, file.path)});
  std::vector<NamedPath> validation = named_paths(config.validation, config.validation_path);
  const bool apart = !validation.front().path.empty();
  std::vector<LoaderPart> train, held_out;
  std::int64_t all_tokens = 0;
  for (std::size_t i = 0; i < data.sources.size(); ++i) {
    const TokenSource& tokens = *data.sources[i].tokens;
    all_tokens += tokens.tokens();
    require_boundaries(deck, tokens);
    const Split parts =
        apart ? Split{{0, tokens.tokens()}, {}} : split(tokens, config.held_out_fraction);
    const double weight = config.mix_weights.empty() ? 1 : config.mix_weights[i];
    if (config.shuffle_documents) {
      const auto seed = static_cast<std::uint64_t>(read(deck, &RunConfig::seed));
      data.shuffled.push_back(shuffled(tokens, parts.train, seed + i));
      const TokenSource& own = *data.shuffled.back();
      train.push_back({.source = &own, .range = {0, own.tokens()}, .weight = weight});
    } else {
      train.push_back({.source = &tokens, .range = parts.train, .weight = weight});
    }
    held_out.push_back({.source = &tokens, .range = parts.held_out});
  }
  LoaderOptions options = loader_options(deck, config, rank, ranks);
  data.train = std::make_unique<Loader>(std::move(train), options);
  require_target(*data.train, data.train->steps_per_pass());
  const auto batches = read(deck, &EvalConfig::steps);
  options.shuffle = batches > 0;
  options.seed = kEvaluationOrder;
  options.once = true;
  if (!apart) {
    for (std::size_t i = 0; i < held_out.size(); ++i) {
      if (held_out[i].range.size() < 2) continue;
      try {
        const double share =
            static_cast<double>(held_out[i].range.size()) / static_cast<double>(all_tokens);
        add_held_out(data, {data.sources[i].name, {}, {}, share}, held_out[i], options, batches);
      } catch (const execution::Error&) {  // the end of what is trained on has nothing to predict
      }
    }
    return data;
  }
  for (const NamedPath& file : validation) {
    std::unique_ptr<TokenSource> tokens = open(deck, config, file.path);
    require_boundaries(deck, *tokens);
    const LoaderPart all{.source = tokens.get(), .range = {0, tokens->tokens()}};
    if (all.range.size() < 2 && !file.name.empty())
      execution::throw_usage("{}: {} has too few tokens to predict one",
                             cite(deck, &DataConfig::validation), file.name);
    if (all.range.size() < 2) continue;
    add_held_out(data, {file.name, std::move(tokens), {}, 0}, all, options, batches);
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
