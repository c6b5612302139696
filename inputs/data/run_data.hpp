#pragma once

#include <memory>
#include <string>
#include <vector>

#include "inputs/data/loader.hpp"
#include "inputs/data/token_source.hpp"
#include "inputs/deck/deck.hpp"

namespace stowage::inputs {

/// The data of a run: what is trained on, and what is held out.
struct Data {
  /// A file that is trained on, and its name if there are several.
  struct Source {
    std::string name;
    std::unique_ptr<TokenSource> tokens;
  };
  /// Held-out tokens that are evaluated together, and their name if the deck gives one.
  struct HeldOut {
    std::string name;
    std::unique_ptr<TokenSource> own;  ///< none: they are the end of what is trained on
    std::unique_ptr<Loader> loader;
    double share = 0;  ///< of the tokens of all files that are trained on; 0: a file of its own

    /// Batches of an evaluation over the first `batches` of them; 0: over all. The last one of all
    /// is filled up with sequences that count nothing.
    std::int64_t evaluated(std::int64_t batches) const;
    /// "its end: 2 documents, 480 tokens (5.00 % of all), all evaluated".
    std::string text(std::int64_t batches) const;
  };

  std::vector<Source> sources;
  /// What is trained on of each source, if documents are shuffled.
  std::vector<std::unique_ptr<TokenSource>> shuffled;
  std::unique_ptr<Loader> train;
  std::vector<HeldOut> held_out;  ///< without those of fewer than two tokens

  /// What is trained on, for people: "text a.txt, masked: 38 documents, 9120 tokens, 41.20 % of
  /// the file masked".
  std::string text() const;
  /// What is held out, and how much of it an evaluation of so many batches takes.
  std::string held_out_text(std::int64_t batches) const;

  std::vector<std::string> files() const;
  /// What tells these tokens from others (inputs/data/digest.hpp).
  std::string digest() const;
  /// Documents that a microbatch of any part can have at most.
  std::int64_t max_documents() const;
  /// Pairs of tokens (k <= q) in the documents of a microbatch of any part at most.
  std::int64_t max_pairs() const;
};

/// Opens and checks the data that a deck names, for one of `ranks` ranks that share each step's
/// sequences equally.
/// @throws Error (exit 2) for wrong keys or files, also if held-out data have no counted target
Data open_data(const Deck& deck, int rank = 0, int ranks = 1);

/// Capacities of the programs of a run: those that the deck names, and one that always fits.
std::vector<std::int64_t> capacities(const Deck& deck, std::int64_t max_documents);

}  // namespace stowage::inputs
