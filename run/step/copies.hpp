#pragma once

#include <string>
#include <vector>

#include "execution/executor.hpp"
#include "execution/op_timer.hpp"
#include "execution/program.hpp"
#include "offload/summary.hpp"
#include "results/result_set.hpp"

namespace stowage::run {

/// What the copies of counted rows move in the last step that an executor issued while this looked
/// on. The step before it is done when it is issued.
class CountedBytes : public execution::Observer {
 public:
  explicit CountedBytes(const execution::Executor& executor) : executor_(executor) {}
  bool sees_ops() const override { return false; }
  void begin_step() override { before_ = executor_.counted_bytes(); }
  void before(int, execution::Queue&) override {}
  void after(int, execution::Queue&) override {}
  /// By step of the plan, as Executor::counted_bytes; of a step that is done.
  std::vector<std::size_t> of_last_step() const;

 private:
  const execution::Executor& executor_;
  std::vector<std::size_t> before_;
};

/// What a plan does with the saved tensors of each module; what its copies took in a step that was
/// timed op by op, and how long compute waited for them.
///
/// @param intervals none: not timed, all times are 0
/// @param counted_bytes what copies of counted rows moved in it, by plan step; empty: none counts
std::vector<offload::ModuleSummary> timed_modules(
    const execution::Program& program, const execution::Plan& plan,
    const std::vector<execution::OpTimer::Interval>& intervals,
    std::vector<std::size_t> counted_bytes);

/// The modules as rows of a result set. @param timed their times were measured
std::vector<results::ModuleCopies> module_rows(const std::string& plan,
                                               const std::vector<offload::ModuleSummary>& modules,
                                               bool timed);

/// True if any module moves.
bool any_copies(const std::vector<offload::ModuleSummary>& modules);

/// Time that compute waits for copies, and the time of all copies, in both directions.
double exposed_s(const std::vector<offload::ModuleSummary>& modules);
double copying_s(const std::vector<offload::ModuleSummary>& modules);

/// Heading and rows of a table of those modules that move; every line starts with "#   " and
/// `label`.
std::string copies_heading(const std::string& label);
std::string copies_text(const std::string& label,
                        const std::vector<offload::ModuleSummary>& modules);

}  // namespace stowage::run
