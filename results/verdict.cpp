#include "results/verdict.hpp"

#include <algorithm>
#include <limits>

namespace stowage::results {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

std::string Check::threshold() const {
  if (low == high) return fmt::format("== {}", low);
  if (low == -kInfinity) return fmt::format("<= {}", high);
  if (high == kInfinity) return fmt::format(">= {}", low);
  return fmt::format("{}..{}", low, high);
}

Check at_most(std::string name, double value, double high, std::string formula) {
  return {std::move(name), value, -kInfinity, high, std::move(formula)};
}

Check at_least(std::string name, double value, double low, std::string formula) {
  return {std::move(name), value, low, kInfinity, std::move(formula)};
}

Check between(std::string name, double value, double low, double high, std::string formula) {
  return {std::move(name), value, low, high, std::move(formula)};
}

Check equal(std::string name, double value, double wanted, std::string formula) {
  return {std::move(name), value, wanted, wanted, std::move(formula)};
}

std::string_view name(Outcome outcome) {
  switch (outcome) {
    case Outcome::valid:
      return "VALID";
    case Outcome::invalid:
      return "INVALID";
    case Outcome::stopped:
      return "STOPPED";
    case Outcome::unfinished:
      return "UNFINISHED";
  }
  return "?";
}

Outcome Verdict::outcome() const {
  const auto passed = [](const Check& check) { return check.passed(); };
  if (!std::all_of(checks_.begin(), checks_.end(), passed)) return Outcome::invalid;
  if (stopped_) return Outcome::stopped;
  return checks_.empty() ? Outcome::invalid : Outcome::valid;
}

execution::Exit Verdict::exit() const {
  switch (outcome()) {
    case Outcome::valid:
      return execution::Exit::valid;
    case Outcome::stopped:
      return execution::Exit::stopped;
    case Outcome::invalid:
    case Outcome::unfinished:
      break;
  }
  return execution::Exit::invalid;
}

}  // namespace stowage::results
