#pragma once

#include <string>
#include <vector>

#include "drivers/data/step_times.hpp"
#include "inputs/deck/command_line.hpp"
#include "inputs/deck/deck.hpp"

namespace stowage::drivers {

/// A sample of numbers by its quantiles: quantile p is the smallest one that p % do not exceed.
struct Distribution {
  std::vector<std::int64_t> quantiles;  ///< (101), the last is the largest

  explicit Distribution(std::vector<std::int64_t> values);
  std::int64_t at(int percent) const { return quantiles[percent]; }
};

/// A capacity of cu_seqlens, and the share of steps whose microbatches all fit.
struct Proposal {
  std::int64_t documents = 0;
  double share = 0;
  StepTimes times = {};  ///< only of the deck's own packing
};

/// One pass over the training data under one packing.
struct PackingStats {
  std::string packing;
  std::string refused;  ///< why this deck cannot have it; the rest is then empty
  std::string summary;  ///< inputs::text of the packing
  double efficiency = 0;
  std::int64_t sequences = 0, split_documents = 0, dropped_documents = 0, dropped_tokens = 0;
  std::vector<std::int64_t> documents_per_microbatch;  ///< (101) quantiles
  double flop_per_token = 0;        ///< of training, by the model's formulas and true lengths
  std::vector<Proposal> proposals;  ///< ascending; the last holds every step
};

/// What `stowage_data stats` finds of a deck's data.
struct DataStats {
  std::string source;
  std::int64_t documents = 0, tokens = 0;
  std::vector<std::int64_t> lengths;  ///< (101) quantiles of document lengths
  std::string chosen;                 ///< the deck's own packing
  std::string unpredicted;            ///< why no times are predicted; empty: they are
  std::vector<PackingStats> packings;
};

/// Reads the boundaries of the data and packs them in every way; no token is used. Throws usage
/// errors as training does, except for packings that are not the deck's.
DataStats data_stats(const inputs::CommandLine& command);

/// The same as tables, and what to write into the deck.
std::string stats_text(const DataStats& stats);
/// The same as JSON, for results/tools/plot_documents.py.
std::string stats_json(const DataStats& stats);

}  // namespace stowage::drivers
