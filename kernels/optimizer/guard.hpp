#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// When a gradient's norm is a spike: above `factor` times the running norm of the steps before.
struct SpikeRule {
  double factor = 0;               ///< 0: no norm is one
  std::int64_t window = 100;       ///< steps of the running norm
  std::int64_t most_in_a_row = 3;  ///< spikes skipped one behind the other; the next one is taken
};

/// What the host says of an attempt at a step, int64 each.
struct Attempt {
  /// Good steps that it believes to be done; -1: it does not care.
  std::int64_t good_steps = -1;
  /// 0: a spike will be attempted again, and counts then.
  std::int64_t last = 1;
};
inline constexpr std::int64_t kAttemptWords = sizeof(Attempt) / sizeof(std::int64_t);

/// Clears step_ok of a step that must not change anything although its gradient may be finite:
///
///   attempt.good_steps is not good_steps: a step before this one failed and the host did not know;
///   norm > factor * running[0], fewer than most_in_a_row such steps came before: a spike.
///
/// A spike of the last attempt is counted in running[1]. A good step sets running[1] to 0 and
///
///   running[0] += (norm - running[0]) max(1 / (good_steps + 1), 1 / window),
///
/// the mean of all steps until the window is full; the first norm, and one that is taken since too
/// many spikes came before it, become running[0] themselves.
///
/// attempt holds the words of an Attempt; good_steps: good steps so far. A step_ok of 0 stays 0,
/// and running stays as it is. Without a rule (factor 0) running is absent.
struct GuardStep {
  static constexpr std::string_view kName = "guard_step";
  SpikeRule rule;
  execution::Dtype storage;
  bool has_running;

  template <class T>
  struct Operands {
    Of<T, const std::int64_t> attempt;
    SumsIn<T> norm;
    Of<T, const std::int64_t> good_steps;
    Of<T, std::int32_t> step_ok;
    Of<T, double> running;
  };
  void each(auto&& f, auto&... o) const {
    using execution::Dtype;
    f(in("attempt", Dtype::int64, {kAttemptWords}), o.attempt...);
    f(in("norm", execution::accumulation(storage), {1}), o.norm...);
    f(in("good_steps", Dtype::int64, {1}), o.good_steps...);
    f(sum("step_ok", true, Dtype::int32, {1}), o.step_ok...);
    f(sum("running", true, Dtype::fp64, {2}).when(has_running), o.running...);
  }
  std::string fault() const;
  execution::Cost cost() const { return {}; }
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

}  // namespace stowage::kernels
