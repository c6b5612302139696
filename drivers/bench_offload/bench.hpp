#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "drivers/bench_offload/cases.hpp"
#include "drivers/common/data.hpp"
#include "execution/device.hpp"
#include "execution/executor.hpp"
#include "inputs/deck/deck.hpp"
#include "layers/trainer.hpp"

namespace stowage::drivers {

/// What stowage_bench_offload is asked for besides the deck.
struct BenchOffloadOptions {
  std::int64_t samples = 50;  ///< of each case, beside as many of the plan that keeps all
  std::vector<std::string> modes{"off"};  ///< graph modes
  std::vector<std::string> only;          ///< parts of the names of cases to run; empty: all
};

/// What a case needs and takes. Times are of whole steps, alternating with the plan that keeps
/// everything.
struct OffloadOutcome {
  std::string name;
  std::string refused;  ///< why there is no plan; else empty
  execution::Plan plan;
  execution::ExecutorCounters counters;  ///< of one step
  double part = 1;     ///< its transient bytes, of those of the plan that keeps all
  double rerun_s = 0;  ///< predicted time of all that is computed again
  std::vector<double> time_s;
  std::vector<double> keep_s;  ///< the other plan's steps in between
  bool same_bits = false;      ///< loss and gradient norm of every step are the other plan's
};

/// Runs the step of a deck under many plans on one device, on the same parameters and tokens: the
/// learning rate and the rate of expert biases are zero, so every step computes the same values.
class BenchOffload {
 public:
  BenchOffload(const inputs::Deck& deck, const BenchOffloadOptions& options, Data& data,
               execution::Backend& backend);

  /// Measures all cases. @param note is called when one is done
  std::vector<OffloadOutcome> run(const std::function<void(const OffloadOutcome&)>& note);
  /// Measured over predicted time of the plan that keeps all, before predictions were fitted to it.
  double fit() const { return fit_; }

 private:
  struct Values {
    std::vector<double> loss, norm;
    friend bool operator==(const Values&, const Values&) = default;
  };

  execution::Plan plan(const offload::PlannerOptions& options) const;
  void make_device(std::size_t transient);
  void fit_rates(const execution::Plan& keep);
  std::unique_ptr<execution::Executor> make_executor(const execution::Plan& plan);
  double step_s(execution::Executor& executor);
  Values values(execution::Executor& executor) const;
  void prepare(OffloadOutcome& outcome, const offload::PlannerOptions& options);
  void measure(OffloadOutcome& outcome);
  bool wanted(const std::string& name) const;

  const inputs::Deck& deck_;
  BenchOffloadOptions options_;
  Data& data_;
  execution::Backend& backend_;
  layers::TrainerPlan trainer_;
  offload::PlannerOptions base_;
  std::unique_ptr<execution::Device> device_;
  std::unique_ptr<execution::Executor> keep_;
  double fit_ = 1;
};

}  // namespace stowage::drivers
