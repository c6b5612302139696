// Rows of [data], and of the capacities for its documents.
#include "inputs/data/data_section.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <set>

#include "inputs/data/mixture.hpp"
#include "inputs/data/run_section.hpp"
#include "inputs/deck/check.hpp"

namespace stowage::inputs {

using execution::throw_usage;

template <>
std::vector<Row<DataConfig>> rows<DataConfig>() {
  return {
      row(&DataConfig::source,
          {.key = "data.source",
           .numerics = true,
           .help =
               "Format of the tokens. auto: a Megatron .bin/.idx pair or an llm.c shard by its "
               "magic, any other file as text, one token a byte, but no JSON lines and no binary "
               "file. text: any file but compressed and other known binary ones, cut into "
               "documents at headings such as \"Genesis 1\" between blank lines; without them it "
               "is one document. synthetic: random tokens, and no path."},
          {{"auto", SourceKind::automatic},
           {"text", SourceKind::text},
           {"megatron", SourceKind::megatron},
           {"llmc", SourceKind::llmc},
           {"synthetic", SourceKind::synthetic}}),
      row(&DataConfig::path,
          {.key = "data.path",
           .help =
               "The data file, relative to the working directory; for Megatron data the .idx, the "
               ".bin or both without suffix."}),
      row(&DataConfig::validation_path,
          {.key = "data.validation_path",
           .help = "Held-out data in a file of its own. Empty: held_out_fraction of data.path."}),
      row(&DataConfig::mix,
          {.key = "data.mix",
           .help = "Training files, each as NAME=PATH, instead of data.path. The last part of each "
                   "is a validation set of that name, unless validation says otherwise."}),
      row(&DataConfig::mix_weights,
          {.key = "data.mix_weights",
           .range = above(0),
           .numerics = true,
           .help = "Shares of the sequences that come from each file of mix, of any sum, exact to "
                   "1 / 65536. A file that is used up begins anew in another order. Empty: all "
                   "alike."}),
      row(&DataConfig::validation,
          {.key = "data.validation",
           .help = "Validation sets in files of their own, each as NAME=PATH, instead of "
                   "validation_path. Losses are told of each and of all together."}),
      row(&DataConfig::mask,
          {.key = "data.mask",
           .numerics = true,
           .help =
               "Loss mask beside each data file (.mask for .bin or .idx, appended to other names): "
               "a byte a token, 0 where it is not predicted. auto: used if it is there."},
          {{"auto", MaskUse::automatic}, {"required", MaskUse::required}, {"none", MaskUse::none}}),
      row(&DataConfig::packing,
          {.key = "data.packing",
           .numerics = true,
           .help =
               "documents: the stream is cut every seq_length tokens; attention, convolution and "
               "scan end where a document ends, and nothing is predicted across. first_fit, "
               "best_fit: the same with whole documents, the rest of a sequence is padding. none: "
               "boundaries are ignored."},
          {{"documents", Packing::documents},
           {"first_fit", Packing::first_fit},
           {"best_fit", Packing::best_fit},
           {"none", Packing::none}}),
      row(&DataConfig::packing_window,
          {.key = "data.packing_window",
           .unit = "documents",
           .range = between(0, kMostInt),
           .numerics = true,
           .help =
               "Documents that first_fit and best_fit pack together, in the order of the data. 0: "
               "all."}),
      row(&DataConfig::shuffle_documents,
          {.key = "data.shuffle_documents",
           .numerics = true,
           .help =
               "Documents that are trained on are packed in a random order, which follows from "
               "run.seed and is the same in each pass. false: in the order of the data. Either way "
               "the order of sequences is random."}),
      row(&DataConfig::split_long,
          {.key = "data.long_documents",
           .numerics = true,
           .help =
               "What first_fit and best_fit do with documents above seq_length tokens. The header "
               "says how many there are."},
          {{"split", true}, {"drop", false}}),
      row(&DataConfig::document_multiple,
          {.key = "data.document_multiple",
           .unit = "tokens",
           .range = between(1, kMostInt),
           .numerics = true,
           .help = "first_fit and best_fit pad each document to a multiple of this; it divides "
                   "seq_length."}),
      row(&DataConfig::held_out_fraction,
          {.key = "data.held_out_fraction",
           .range = from_to_below(0, 1),
           .numerics = true,
           .help = "The last part of the documents, kept for evaluation."}),
      row(&DataConfig::max_documents,
          {.key = "data.max_documents",
           .range = between(0, kMostInt),
           .numerics = true,
           .help =
               "Documents that a microbatch may hold: the capacity of cu_seqlens. first_fit and "
               "best_fit never pack more; with other packings, steps that have more run a larger "
               "program. 0: what the data can need at most."}),
      row(&DataConfig::document_token,
          {.key = "data.document_token",
           .range = between(-1, kMostInt),
           .numerics = true,
           .help = "Token that starts a document in files without stored boundaries (llm.c's "
                   "shards, GPT-2: 50256, Llama 3: 128000). -1: none."}),
      row(&DataConfig::synthetic_tokens,
          {.key = "data.synthetic_tokens",
           .unit = "tokens",
           .range = between(2, kMostTokens),
           .numerics = true,
           .help = "Length of the synthetic stream: uniform random tokens by position."}),
      row(&DataConfig::synthetic_document_length,
          {.key = "data.synthetic_document_length",
           .unit = "tokens",
           .range = between(0, 1 << 30),
           .numerics = true,
           .help = "Mean length of synthetic documents, which are uniform in [1, 2 * mean). 0: the "
                   "stream is one document."}),
      row(&DataConfig::synthetic_lengths,
          {.key = "data.synthetic_lengths",
           .unit = "tokens",
           .range = between(1, 1 << 30),
           .numerics = true,
           .help =
               "Lengths of synthetic documents, of which each has one, drawn at random, instead of "
               "synthetic_document_length."}),
      row(&DataConfig::graphed_documents,
          {.key = "graphs.max_packed_seqs",
           .range = between(1, kMostInt),
           .help = "Capacities, in documents of a microbatch, for which graphs are captured; the "
                   "smallest that fits is used. Empty: one, as data.max_documents says."}),
  };
}

namespace {

constexpr std::int64_t kMostDocuments = 1 << 28;  // their starts are held in memory

void check_names(const std::vector<std::string> DataConfig::*member, const DataConfig& data,
                 const Deck& deck) {
  std::set<std::string> names;
  for (const std::string& item : data.*member) {
    const auto [name, path] = named_path(item);
    const bool plain = std::ranges::all_of(
        name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
    if (name.empty() || path.empty() || !plain)
      throw_usage("{}: '{}' is no NAME=PATH with a name of letters, digits, _ and -",
                  cite(deck, member), item);
    if (name == "step")  // the scale of the series of losses
      throw_usage("{}: a file cannot be named '{}'", cite(deck, member), name);
    if (!names.insert(name).second)
      throw_usage("{}: two files are named '{}'", cite(deck, member), name);
  }
}

void check_mix(const DataConfig& data, const Deck& deck) {
  check_names(&DataConfig::mix, data, deck);
  check_names(&DataConfig::validation, data, deck);
  if (data.mix.size() > Mixture::kMostSources)
    throw_usage("{}: {} files; allowed: {}", key(&DataConfig::mix), data.mix.size(),
                Mixture::kMostSources);
  const auto both = [&](auto one, auto other) {
    throw_usage("{} and {} are both given; allowed: one of them", cite(deck, one),
                cite(deck, other));
  };
  if (!data.mix.empty() && !data.path.empty()) both(&DataConfig::path, &DataConfig::mix);
  if (!data.validation.empty() && !data.validation_path.empty())
    both(&DataConfig::validation_path, &DataConfig::validation);
  if (!data.mix_weights.empty() && data.mix_weights.size() != data.mix.size())
    throw_usage("{}: {} weights of the {} files of {}", cite(deck, &DataConfig::mix_weights),
                data.mix_weights.size(), data.mix.size(), key(&DataConfig::mix));
  if (read(deck, &RunConfig::source_losses) && data.mix.empty())
    throw_usage("{} needs {}: training files, each as NAME=PATH",
                cite(deck, &RunConfig::source_losses), key(&DataConfig::mix));
}

void check_source(const DataConfig& data, const Deck& deck) {
  if (data.source != SourceKind::synthetic) {
    if (data.path.empty() && data.mix.empty())
      throw_usage("{0} is empty: give the file of {1}, or {2} = \"synthetic\"",
                  key(&DataConfig::path), cite(deck, &DataConfig::source),
                  key(&DataConfig::source));
    return;
  }
  for (const auto path : {&DataConfig::path, &DataConfig::validation_path}) {
    if (!(data.*path).empty())
      throw_usage("{} would not be read with {}: say {} = \"auto\", or leave {} empty",
                  cite(deck, path), cite(deck, &DataConfig::source), key(&DataConfig::source),
                  key(path));
  }
  for (const auto files : {&DataConfig::mix, &DataConfig::validation}) {
    if (!(data.*files).empty())
      throw_usage("{} would not be read with {}: say {} = \"auto\", or leave {} empty",
                  cite(deck, files), cite(deck, &DataConfig::source), key(&DataConfig::source),
                  key(files));
  }
}

void check_synthetic(const DataConfig& data, const Deck& deck) {
  const auto& lengths = data.synthetic_lengths;
  if (!lengths.empty() && data.synthetic_document_length > 0)
    throw_usage("{} and {} are both given; allowed: one of them",
                cite(deck, &DataConfig::synthetic_document_length),
                key(&DataConfig::synthetic_lengths));
  if (data.source != SourceKind::synthetic) return;
  const std::int64_t mean =
      lengths.empty()
          ? data.synthetic_document_length
          : std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}) / std::ssize(lengths);
  if (mean > 0 && data.synthetic_tokens / mean > kMostDocuments)
    throw_usage("{} with {}: more than {} documents", cite(deck, &DataConfig::synthetic_tokens),
                lengths.empty() ? cite(deck, &DataConfig::synthetic_document_length)
                                : cite(deck, &DataConfig::synthetic_lengths),
                kMostDocuments);
  if (packs_whole(data.packing) &&
      data.synthetic_tokens / read(deck, &TrainConfig::seq_length) > kMostDocuments)
    throw_usage("{} with {} and {}: more than {} sequences, which {} holds in memory",
                cite(deck, &DataConfig::synthetic_tokens), cite(deck, &TrainConfig::seq_length),
                cite(deck, &DataConfig::packing), kMostDocuments,
                deck.get<std::string>(key(&DataConfig::packing)));
}

void check_packing(const DataConfig& data, const Deck& deck) {
  const auto sequences = read(deck, &TrainConfig::micro_batch_size);
  const bool whole = packs_whole(data.packing);
  if (data.document_multiple > 1 && !whole)
    throw_usage("{} needs {} = \"first_fit\" or \"best_fit\", not {}",
                cite(deck, &DataConfig::document_multiple), key(&DataConfig::packing),
                cite(deck, &DataConfig::packing));
  check_divides(deck, key(&DataConfig::document_multiple), key(&TrainConfig::seq_length));
  if (whole && data.max_documents > 0 && data.max_documents < sequences)
    throw_usage("{} is less than one document for each sequence of {}",
                cite(deck, &DataConfig::max_documents), cite(deck, &TrainConfig::micro_batch_size));
  const std::int64_t tokens = read<TrainConfig>(deck).microbatch_tokens();
  if (std::ranges::any_of(data.graphed_documents, [&](std::int64_t c) { return c > tokens; }))
    throw_usage("{}: a microbatch has {} tokens ({}, {}), and so at most as many documents",
                cite(deck, &DataConfig::graphed_documents), tokens,
                cite(deck, &TrainConfig::micro_batch_size), cite(deck, &TrainConfig::seq_length));
}

}  // namespace

NamedPath named_path(const std::string& item) {
  const std::size_t equals = std::min(item.find('='), item.size());
  return {item.substr(0, equals), item.substr(std::min(equals + 1, item.size()))};
}

void check(const DataConfig& data, const Deck& deck) {
  check_mix(data, deck);
  check_source(data, deck);
  check_synthetic(data, deck);
  check_packing(data, deck);
}

}  // namespace stowage::inputs
