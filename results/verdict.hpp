#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "execution/error.hpp"

namespace stowage::results {

/// One check of the validation section. Its result follows from its numbers, never from a flag.
struct Check {
  std::string name;     ///< "val_loss_below_target"
  double value;         ///< what was measured; NaN fails every check
  double low;           ///< least value that passes; -inf: no such limit
  double high;          ///< largest value that passes; +inf: no such limit
  std::string formula;  ///< what `value` is, in words or symbols

  bool passed() const { return value >= low && value <= high; }
  std::string threshold() const;  ///< "<= 2.2", ">= 1", "== 0" or "3.9..4.1"
};

/// Checks by their usual forms.
Check at_most(std::string name, double value, double high, std::string formula);
Check at_least(std::string name, double value, double low, std::string formula);
Check between(std::string name, double value, double low, double high, std::string formula);
Check equal(std::string name, double value, double wanted, std::string formula);

/// How a run ended.
enum class Outcome {
  valid,      ///< every check passed
  invalid,    ///< a check failed, or none was made
  stopped,    ///< ended early by a signal after a checkpoint
  unfinished  ///< the program ended without a verdict
};

/// "VALID", "INVALID", "STOPPED" or "UNFINISHED".
std::string_view name(Outcome outcome);

/// The checks of a run and what follows from them.
class Verdict {
 public:
  void add(Check check) { checks_.push_back(std::move(check)); }
  void stop() { stopped_ = true; }                              ///< a signal ended the run early
  void remark(std::string text) { remark_ = std::move(text); }  ///< "not official: 42 s < 600 s"

  const std::vector<Check>& checks() const { return checks_; }
  const std::string& remark() const { return remark_; }

  /// Invalid if any check failed; else stopped if stopped; else valid if a check was made.
  Outcome outcome() const;
  execution::Exit exit() const;

 private:
  std::vector<Check> checks_;
  std::string remark_;
  bool stopped_ = false;
};

}  // namespace stowage::results
