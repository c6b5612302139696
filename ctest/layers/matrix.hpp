#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tiny_model.hpp"

namespace stowage::ctest {

/// One way to run the same training steps. All must give the same bits.
struct Cell {
  std::string graphs = "eager";    ///< eager, scopes, layer, router or step
  std::string offload = "none";    ///< none, a module's name, all, half, auto or reuse
  std::string recompute = "none";  ///< none, some or all
  int microbatches = 1;
  int max_inflight = -1;
  bool delay = false;
  bool overlapping = false;  ///< copies of graphs in mode scopes
  bool states = false;       ///< optimizer states have their home on the host
  bool weights = false;      ///< gradients and parameters too
  std::size_t min_tensor_bytes = 0;

  std::string name() const;
};

/// Every combination of the axes that the cells of a matrix have.
std::vector<Cell> all_cells();
/// As few of them as it takes to have every two values of two axes together in one of them.
std::vector<Cell> pairwise_cells();
/// Every so many-th of them, and a few more, so that every choice is in one: what one of `hands`
/// grids of ranks runs. Choices meet each other in the planner, which one rank shows
/// (layers.matrix); each has to meet the exchanges of every grid. All hands together have all.
std::vector<Cell> dealt_cells(std::size_t hand, std::size_t hands, const std::vector<Cell>& cells);
/// All modules leave, in graphs: the knobs that decide when.
std::vector<Cell> knob_cells();

/// Runs cells of a model with all four letters and compares them with the run that keeps everything
/// and has no graphs, by the program of the largest capacity: losses, gradients, parameters and
/// states, over several steps.
class Matrix {
 public:
  struct Setup {
    std::function<std::unique_ptr<execution::Backend>()> backend;
    execution::Dtype dtype = execution::Dtype::bf16;
    std::function<void(forecast::TrainerOptions&)> adjust = {};  ///< for several ranks
    int rank = 0;                                                ///< each has data of its own
    /// Documents of the microbatches of each step, in turn; none: always the same ones.
    std::vector<std::vector<Documents>> packings = {};
    double lr = 1e-2;
    std::size_t budget_percent = 60;  ///< of what the plain plan moves, for automatic plans
    bool digest = false;              ///< states are compared by their digests
    const layers::Optimizer* optimizer = &layers::kAdamw;
  };

  explicit Matrix(Setup setup) : setup_(std::move(setup)) {}

  /// Expects the bits of the plain run, and that plan and executor count what the cell asks for.
  void check(const Cell& cell);

 private:
  struct Outcome {
    std::vector<double> losses;
    std::vector<std::byte> state;
    friend bool operator==(const Outcome&, const Outcome&) = default;
  };
  /// What the plain run of a number of microbatches shows.
  struct Plain {
    Outcome outcome;
    std::size_t transient_bytes = 0;
    std::size_t reduction_bytes = 0;  ///< of them, what reductions over ranks work in
    std::size_t persistent_bytes = 0;
    std::size_t state_bytes = 0;                ///< of them, what the host can have
    std::map<std::string, std::size_t> pieces;  ///< graph nodes of each op
  };

  const Plain& plain(int microbatches);
  forecast::TrainerOptions options(const Cell& cell);
  Outcome run(TinyRun& run) const;
  void expect_counts(const Cell& cell, TinyRun& run);
  /// Of the program of one capacity.
  void expect_counts(const Cell& cell, const execution::Executor& executor);

  Setup setup_;
  std::map<int, Plain> plain_;
};

}  // namespace stowage::ctest
