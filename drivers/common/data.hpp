#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "inputs/data/loader.hpp"
#include "inputs/data/token_source.hpp"
#include "inputs/deck/deck.hpp"
#include "parallel/grid.hpp"

namespace stowage::drivers {

/// The data of a run: what is trained on, and what is held out.
struct Data {
  std::unique_ptr<inputs::TokenSource> source;
  std::unique_ptr<inputs::TokenSource> validation_source;  ///< only with data.validation_path
  std::unique_ptr<inputs::Loader> train;
  std::unique_ptr<inputs::Loader> held_out;  ///< none if nothing is held out, or not enough of it
  std::int64_t global_batch = 1;             ///< sequences of a step, over all ranks

  /// Whole batches of an evaluation over the first `batches` held-out ones; 0: over all.
  std::int64_t evaluated(std::int64_t batches) const;

  std::vector<std::string> files() const;
  /// What tells these tokens from others (inputs/data/digest.hpp).
  std::string digest() const;
  /// Documents that a microbatch of either part can have at most.
  std::int64_t max_documents() const;
  /// Pairs of tokens (k <= q) in the documents of a microbatch of either part at most.
  std::int64_t max_pairs() const;
};

/// Opens and checks the data that a deck names, for a rank that has a part of each step's
/// sequences. Throws usage errors (exit 2), also if what is evaluated has no counted target.
Data open_data(const inputs::Deck& deck, parallel::SequencePart part);

/// Capacities of the programs of a run: those that the deck names, and one that always fits.
std::vector<std::int64_t> capacities(const inputs::Deck& deck, std::int64_t max_documents);

}  // namespace stowage::drivers
