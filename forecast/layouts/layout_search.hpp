#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "forecast/layouts/layout.hpp"
#include "forecast/plan/planned_rank.hpp"
#include "inputs/deck/deck.hpp"

namespace stowage::forecast {

/// Plans that are made at most: each takes up to a second. So many again where none of them fits.
constexpr int kMostPlans = 16;

/// What becomes of saved tensors: what the deck says, or all are computed again, or the automatic
/// policy decides within the memory of the machine.
enum class Saved : unsigned char { as_asked, again, automatic };

/// A layout with its plan, if there is one.
struct Candidate {
  Layout layout;
  Estimate estimate;
  bool planned = false;
  double step_s = 0;
  double device_bytes = 0, host_bytes = 0;
  Saved saved = Saved::as_asked;
  std::vector<std::string> recompute = {};  ///< names of modules, if all are computed again
  double missing_bytes = 0;                 ///< of the device, even so
  std::string schedule = {};
  std::string refused = {};  ///< why no plan fits

  bool usable() const { return planned && refused.empty(); }
  double expected_s() const { return usable() ? step_s : estimate.step_s(); }
};

/// All grids of so many ranks that a deck's sizes allow: estimated, and the best planned.
class LayoutSearch {
 public:
  /// How thorough plans are: `quick` makes few, of few microbatches, from which the time of all
  /// microbatches follows as their estimates do.
  enum class Effort : unsigned char { full, quick };

  /// Estimates. @throws Error (exit 2) if the machine is not known, or no layout is possible
  LayoutSearch(const inputs::Deck& deck, std::int64_t ranks, Effort effort);

  /// Plans in the order of the estimates until nothing later can be among the best; if nothing
  /// fits, those that hold least.
  /// @return false if nothing fits
  bool plan(std::size_t wanted);
  /// @throws Error (exit 2) that names the planned layout that misses least, or the one whose state
  /// is smallest if none was worth a plan
  [[noreturn]] void nothing_fits() const;

  const inputs::Deck& deck() const { return deck_; }
  std::int64_t ranks() const { return ranks_; }
  double memory() const { return memory_; }
  /// The quickest first, those without a plan that fits behind the others.
  const std::vector<Candidate>& candidates() const { return candidates_; }
  std::ptrdiff_t planned() const;

 private:
  void enumerate();
  void consider(const Layout& layout);
  bool as_asked(const parallel::GridShape& shape) const;
  bool is_asked(std::string_view key) const { return deck_.where(key) == "command line"; }
  bool enough(std::size_t wanted, const Candidate& next) const;
  void plan_some(std::size_t wanted);
  void sort_by_step();
  void improve(std::size_t wanted);
  void make_plans(Candidate& candidate);
  void make_plans(Candidate& candidate, Saved saved);
  void add_plan(Candidate& candidate, const Layout& layout, int rank);
  void note_again(int rank, const TrainerOptions& options, const TrainerPlan& plan);
  void tell_progress(int number, const Layout& layout) const;
  [[noreturn]] void no_layout() const;

  const inputs::Deck& deck_;
  std::int64_t ranks_;
  Effort effort_;
  double memory_;
  PlannedData data_ = planned_data(deck_);
  LayoutEstimator estimator_{deck_, data_, effort_ == Effort::quick};
  std::vector<Candidate> candidates_;
  std::map<int, offload::Policy> again_;  ///< by stage of the candidate at hand: all computed again
  std::string refused_;                   ///< the last reason against a cut
  static constexpr std::int64_t kNoBatch = std::numeric_limits<std::int64_t>::max();
  std::int64_t least_batch_ = kNoBatch;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace stowage::forecast
