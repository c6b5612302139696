#include "run/judge/judge.hpp"
#include "forecast/plan/run_section.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/recording/config_section.hpp"
#include "layers/step/step_section.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace stowage::run {
namespace {

constexpr double kLargest = std::numeric_limits<double>::max();

/// The last step that changed something, if any did.
const StepReport* last_good(const History& history) {
  const auto found = std::find_if(history.steps.rbegin(), history.steps.rend(),
                                  [](const StepReport& r) { return r.ok; });
  return found == history.steps.rend() ? nullptr : &*found;
}

/// The value of a quantity after `step` steps (-1: the last), or NaN.
double value_at(const History& history, const inputs::Expectation& expected) {
  const double none = std::nan("");
  if (expected.quantity == "val_loss") {
    for (const auto& e : history.evaluations)
      if (e.step == expected.step) return e.loss;
    return expected.step < 0 && !history.evaluations.empty() ? history.evaluations.back().loss
                                                             : none;
  }
  const auto pick = [&](const StepReport& r) {
    return expected.quantity == "loss" ? r.loss : r.grad_norm;
  };
  for (const StepReport& report : history.steps)
    if (report.step == expected.step) return pick(report);
  const StepReport* last = last_good(history);
  return expected.step < 0 && last != nullptr ? pick(*last) : none;
}

/// Without checks, but with what the deck makes of the run.
results::Verdict begin_verdict(const inputs::Deck& deck) {
  results::Verdict verdict;
  const std::string_view key = inputs::key(&layers::ModelConfig::Moe::forced_load);
  const auto& load = deck.get<std::string>(key);
  if (load != "none") verdict.remark(fmt::format("not official: {} is {}", key, load));
  return verdict;
}

/// Adds a check that a deck asks for; `value` is NaN if the run has none, and fails.
void add_limit(results::Verdict& verdict, const inputs::Deck& deck, const char* name,
               double forecast::ValidateConfig::*limit, double value, const char* formula) {
  const double high = inputs::read(deck, limit);
  if (std::isfinite(high)) verdict.add(results::at_most(name, value, high, formula));
}

}  // namespace

std::vector<StepReport> timed_steps(const History& history) {
  std::vector<StepReport> timed;
  const std::size_t skip = std::min<std::size_t>(history.steps.size() / 10 + 1, 10);
  for (std::size_t i = skip; i < history.steps.size(); ++i)
    if (!history.steps[i].disturbed) timed.push_back(history.steps[i]);
  if (timed.empty() && !history.steps.empty()) timed.push_back(history.steps.back());
  return timed;
}

std::int64_t skipped_steps(const History& history) {
  return std::count_if(history.steps.begin(), history.steps.end(),
                       [](const StepReport& r) { return !r.ok; });
}

double tail_mean(const History& history, double StepReport::*loss) {
  std::vector<double> losses;
  for (const StepReport& report : history.steps)
    if (report.ok) losses.push_back(report.*loss);
  if (losses.empty()) return std::nan("");
  const std::size_t tail = std::max<std::size_t>(1, losses.size() / 10);
  return std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(tail), losses.end(), 0.0) /
         static_cast<double>(tail);
}

results::Verdict judge(const inputs::Deck& deck, const History& history, bool complete) {
  results::Verdict verdict = begin_verdict(deck);
  const double none = std::nan("");
  verdict.add(results::at_most(
      "skipped_steps", static_cast<double>(skipped_steps(history)),
      static_cast<double>(inputs::read(deck, &forecast::ValidateConfig::most_skipped_steps)),
      "steps that changed nothing, since their gradient was not finite or a spike"));
  if (history.gradients)
    verdict.add(results::at_most(
        "gradients", history.gradients->error, 1,
        fmt::format("largest distance of a gradient from finite differences, over what it may be: "
                    "{} parameters of {}; {}",
                    history.gradients->parameters, history.gradients->how,
                    history.gradients->parameter)));
  if (history.replayed)
    verdict.add(results::equal("replayed_step", *history.replayed ? 0 : 1, 0,
                               "first steps whose state differs, done twice from the same start"));
  if (history.copies)
    verdict.add(results::equal("copies_that_differ", history.differing, 0,
                               "tensors of the state that ranks share and hold other bits of"));
  const StepReport* last = last_good(history);
  const double loss = last == nullptr ? none : last->loss;
  if (!history.all_before)
    verdict.add(results::at_most("finite_loss", std::abs(loss), kLargest,
                                 "|training loss of the last step that was not skipped|"));
  double norm = last == nullptr ? none : 0;
  for (const StepReport& r : history.steps)
    if (r.ok && r.step > inputs::read(deck, &layers::LearningRate::warmup_steps))
      norm = std::max(norm, r.grad_norm);
  add_limit(verdict, deck, "grad_norm", &forecast::ValidateConfig::grad_norm_below, norm,
            "largest gradient norm after warm-up");
  const auto& evaluations = history.evaluations;
  const double val_loss = evaluations.empty() ? none : evaluations.back().loss;
  if (!evaluations.empty())
    verdict.add(results::at_most("finite_val_loss", std::abs(val_loss), kLargest,
                                 "|last validation loss|"));
  if (!complete) return verdict;
  // What the deck promises of the end of the run; a value that is missing fails its check.
  add_limit(verdict, deck, "loss", &forecast::ValidateConfig::loss_below, loss,
            "last training loss");
  add_limit(verdict, deck, "val_loss", &forecast::ValidateConfig::val_loss_below, val_loss,
            "last validation loss per token");
  if (inputs::read(deck, &forecast::ValidateConfig::val_loss_falling)) {
    const std::size_t n = evaluations.size();
    const double fall = n < 2 ? none : evaluations[n - 2].loss - evaluations[n - 1].loss;
    verdict.add({"val_loss_falling", fall, 0, HUGE_VAL, "fall of the last validation loss"});
  }
  // A run that begins behind a step, or is asked to end before it, says nothing of its loss.
  const auto asked = inputs::read(deck, &inputs::RunConfig::steps);
  const std::int64_t begin = history.steps.empty() ? 0 : history.steps.front().step;
  for (const inputs::Expectation& expected : deck.expectations())
    if (expected.step < 0 || (begin <= expected.step && expected.step <= asked))
      verdict.add(results::between(expected.key, value_at(history, expected), expected.low,
                                   expected.high, "expects." + expected.key));
  return verdict;
}

results::Verdict judge_evaluation(const inputs::Deck& deck, const History& history) {
  results::Verdict verdict = begin_verdict(deck);
  const double loss = history.evaluations.back().loss;
  verdict.add(
      results::at_most("finite_val_loss", std::abs(loss), kLargest, "|last validation loss|"));
  add_limit(verdict, deck, "val_loss", &forecast::ValidateConfig::val_loss_below, loss,
            "last validation loss per token");
  return verdict;
}

}  // namespace stowage::run
