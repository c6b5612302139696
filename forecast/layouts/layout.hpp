#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "forecast/pipeline/balance.hpp"
#include "forecast/plan/planned_rank.hpp"
#include "forecast/plan/trainer_plan.hpp"
#include "inputs/deck/deck.hpp"

namespace stowage::forecast {

/// One way to share a step among ranks.
struct Layout {
  parallel::GridShape shape;
  int virtual_stages = 1;  ///< of each rank of a pipeline; interleaved if there are several
  bool zero = false;       ///< masters and optimizer states are cut (ZeRO-1)
  int microbatches = 1;    ///< of a step on one rank

  int ranks() const { return shape.ranks(); }
  layers::PipelineShape pipeline() const {
    return {shape[parallel::Axis::pipeline], virtual_stages};
  }
  /// "d2", "p2_v3_d4_zero": what is above 1 in the grid's order, "d1" if there is none.
  std::string name() const;
  /// What a deck says of it: "parallel.tensor=2", …; of one stage a rank nothing of stages.
  std::vector<std::string> overrides() const;
  friend bool operator==(const Layout&, const Layout&) = default;
};

/// What a layout is expected to take, part by part, without a plan: seconds of the slowest rank.
struct Estimate {
  double compute_s = 0;
  double exchange_s = 0;   ///< inside layers, all of it waited for
  double bubble_s = 0;     ///< of the pipeline; of one stage a rank by the quicker schedule
  double gradients_s = 0;  ///< sums and gathered weights that backward and forward do not hide
  double optimizer_s = 0;
  double persistent_bytes = 0;  ///< parameters, gradients, optimizer states
  std::string refused;          ///< why the model cannot be cut so; empty: it can

  double step_s() const { return compute_s + exchange_s + bubble_s + gradients_s + optimizer_s; }
};

/// Estimates layouts of one deck. The passes of each layer are recorded once for each way to cut a
/// layer, and priced by the machine's rates; the rest is arithmetic on them.
class LayoutEstimator {
 public:
  /// @param deck with the machine's rates; what it says of axes is not looked at
  /// @param data of the deck's run  @param each_kind layers are timed by kind, not one by one
  LayoutEstimator(const inputs::Deck& deck, const PlannedData& data, bool each_kind)
      : deck_(deck), data_(data), each_kind_(each_kind) {}

  Estimate estimate(const Layout& layout);

 private:
  /// A model that is cut inside of layers, as one stage.
  struct Cut {
    std::string refused;
    PredictedParts parts;
  };
  /// Elements of one rank by reduction group and by whether their rule needs whole matrices, on the
  /// rank of the pipeline that has the most; and the FLOPs of whole matrices of its stage.
  struct Elements {
    std::map<std::pair<std::string, bool>, double> counts;
    double matrix_flops = 0;
  };
  struct PartElements {
    Elements embedding, head;
    std::vector<Elements> layers;
    bool tied = false;  ///< the head's stage has the embedding, too
  };

  const Cut& cut(const Layout& layout);
  const std::string& cut_pattern(const Layout& layout, const PartTimes& times);
  const PartElements& part_elements(const Layout& layout);
  const Elements& elements(const Layout& layout, const std::string& pattern);
  void add_state(Estimate& estimate, const Layout& layout, const Elements& elements,
                 const layers::PassTimes& times, const layers::PassTimes& exchange) const;

  const inputs::Deck& deck_;
  const PlannedData& data_;
  bool each_kind_;
  std::map<std::array<int, 3>, Cut> cuts_;                  ///< by tensor, context, expert
  std::map<std::array<int, 3>, PartElements> parts_;        ///< the same
  std::map<std::array<int, 5>, Elements> elements_;         ///< and pipeline and virtual stages
  std::map<std::array<int, 5>, std::string> cut_patterns_;  ///< the same; with '|'
};

/// The options of a rank of a layout; of one stage a rank with the quicker schedule.
/// @param rank of the pipeline
TrainerOptions layout_options(const inputs::Deck& deck, const PlannedData& data,
                              const Layout& layout, int rank);

}  // namespace stowage::forecast
