#pragma once

#include <map>
#include <string>
#include <vector>

#include "parallel/job/mpi.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {

/// Steps of a run.
constexpr int kSteps = 2;

/// What a run of some steps leaves.
struct Outcome {
  int reruns = 0;                     ///< of steps without room for all rows of experts
  std::vector<double> losses, norms;  ///< TinyRun::told() of all steps; of each step
  std::map<std::string, std::vector<double>> state;  ///< what a rank has
};

/// A grid, and what is to be computed on it. Ranks that no axis names are on the data axis.
struct Case {
  int tensor = 1, expert = 1;
  bool zero = false;
  int microbatches = 1;
  int context = 1;
  int pipeline = 1;
  /// Of each microbatch; none: those of a TinyRun, which cross ranks, end at one's border, and have
  /// one token.
  std::vector<std::int32_t> documents = {};
  /// Of each token; none: by the router.
  TinyRun::Routing routing = {};
};

/// Of a tiny model: sizes that divide among up to four ranks.
forecast::TrainerOptions options_of(const std::string& pattern, execution::Dtype dtype);

/// Has attention work on chunks, of tokens of which each of these context ranks has two.
void make_zigzag(forecast::TrainerOptions& options, int context);

/// Some steps of this part of the sequences.
Outcome run(TinyRun& tiny, TinyRun::Part part, const Case& c);
Outcome run(forecast::TrainerOptions options, TinyRun::Part part, const Case& c);

/// All ranks of the job, as the ranks of a grid.
class Axes {
 public:
  const parallel::Communicator world = parallel::Communicator::world();

  /// With the ranks of the case's grid.
  forecast::TrainerOptions shared(forecast::TrainerOptions options, const Case& c) const;

  static TinyRun::Part part_of(const parallel::Ranks& ranks);

  /// Compares a run of all ranks with one of a rank alone. @return its reruns
  int compare(const forecast::TrainerOptions& given, const Case& c) const;

  /// Grids of these ranks: of four or more every other one, from the first or the second in turns;
  /// all if STOWAGE_EVERY_PAIR is set.
  std::vector<Case> grids() const;

 private:
  std::vector<Case> all_grids() const;
};

/// Of heads, where the four of options_of() divide.
layers::ModelConfig::Attention::Exchange exchange_of_heads(const Case& c);

std::string text(const Case& c, const std::string& pattern);

}  // namespace stowage::ctest
