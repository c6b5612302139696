#include "drivers/bench_scaling/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "forecast/plan/memory_table.hpp"
#include "forecast/plan/options.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/recording/config_section.hpp"
#include "results/console.hpp"
#include "run/machine/agreement.hpp"

namespace stowage::drivers {
namespace {

using results::Samples;

const results::Value* find(const Samples& point, std::string_view name) {
  const auto found = std::ranges::find(point.attributes, name, &results::Field::name);
  return found == point.attributes.end() ? nullptr : &found->value;
}

/// NaN where a point does not say.
double number(const Samples& point, std::string_view name) {
  const results::Value* value = find(point, name);
  if (value == nullptr) return std::nan("");
  if (const auto* whole = std::get_if<std::int64_t>(value)) return static_cast<double>(*whole);
  return std::get<double>(*value);
}

const std::string& text(const Samples& point, std::string_view name) {
  return std::get<std::string>(*find(point, name));
}

void set_field(Samples& point, const std::string& name, results::Value value) {
  std::erase_if(point.attributes, [&](const results::Field& field) { return field.name == name; });
  point.attributes.push_back({name, std::move(value)});
}

/// Of the slowest rank.
std::vector<double> step_times(const Samples& point) {
  return run::largest_of_ranks(point.time_s, static_cast<std::size_t>(point.ranks));
}

/// Tokens per second of a rank beside those of the base, with the interval of that quotient.
results::Metric efficiency(const Samples& point, const Samples& base) {
  const double work = number(point, "tokens") / static_cast<double>(point.ranks) /
                      (number(base, "tokens") / static_cast<double>(base.ranks));
  const std::vector<double> mine = step_times(point), others = step_times(base);
  const results::Interval quotient = results::quotient_interval(others, mine);
  results::Metric made =
      results::metric(point.path + "/efficiency",
                      work * results::summarize(others).median / results::summarize(mine).median);
  made.median_of = static_cast<std::int64_t>(mine.size());
  made.ci95 = {work * quotient.low, work * quotient.high};
  return made;
}

/// What graphs gain beside the same point issued op by op.
results::Metric graph_gain(const Samples& point, const Samples& eager) {
  const std::vector<double> mine = step_times(point), others = step_times(eager);
  results::Metric made =
      results::metric(point.path + "/graph_gain",
                      results::summarize(others).median / results::summarize(mine).median);
  made.median_of = static_cast<std::int64_t>(mine.size());
  made.ci95 = results::quotient_interval(others, mine);
  return made;
}

std::string percent(const results::Interval& part) {
  if (std::isnan(part.low)) return "-";  // too few steps
  return fmt::format("{:.1f}..{:.1f}", 100 * part.low, 100 * part.high);
}

/// One rounding of a number in [1, 2) to a dtype, as results/tools/scaling.py has it.
double rounding(execution::Dtype dtype) {
  return dtype == execution::Dtype::bf16 ? 0x1p-9 : execution::epsilon(dtype);
}

/// Rounding of a loss by another order of sums: each layer adds about one rounding of the residual
/// stream, which grow as a random walk, and the mean over tokens one of its own type. Four times
/// that is allowed.
double loss_band(const inputs::Deck& deck) {
  const execution::Dtype dtype = inputs::read(deck, &inputs::TrainConfig::dtype);
  const double stored = rounding(dtype), summed = rounding(execution::accumulation(dtype));
  const auto layers = static_cast<double>(inputs::read(deck, &layers::ModelConfig::pattern).size());
  return 4 * (stored * std::sqrt(layers) + summed);
}

/// The largest relative distance of a loss from that of the first point of the same batch.
double loss_distance(const std::vector<Samples>& points) {
  std::map<double, double> first;
  double worst = 0;
  for (const Samples& point : points) {
    const double loss = number(point, "loss");
    const double other = first.try_emplace(number(point, "global_batch"), loss).first->second;
    const double distance = std::abs(loss / other - 1);
    worst = std::isnan(distance) ? distance : std::max(worst, distance);
  }
  return worst;
}

/// Points whose state differs from that of the first point of the same batch and grid: modes of
/// graphs and sharded optimizer states change no bit.
double other_states(const std::vector<Samples>& points) {
  std::map<std::string, std::string> first;
  double others = 0;
  for (const Samples& point : points) {
    std::string grid;
    for (const char* part : {"global_batch", "tensor", "context", "expert", "pipeline", "data"})
      grid += fmt::format("{} ", number(point, part));
    const std::string& digest = text(point, "state_digest");
    others += first.try_emplace(grid, digest).first->second == digest ? 0 : 1;
  }
  return others;
}

}  // namespace

ScalingReport::ScalingReport(const inputs::Deck& deck, const results::ResultHeader& header,
                             const std::filesystem::path& path)
    : deck_(deck), set_(path, header) {
  fmt::print("{}",
             results::header_text("stowage_bench_scaling", header.run, header.ranks,
                                  {{"model", inputs::read(deck, &layers::ModelConfig::pattern)}}));
  if (header.ranks.size() > 1) fmt::print("{}", results::ranks_text(header.ranks));
  fmt::print("#   {:<28}{:>6}{:>7}{:>11}{:>11}{:>8}{:>15}{:>9}{:>9}{:>9}{:>9}{:>11}{:>8}\n",
             "point", "ranks", "batch", "step ms", "tokens/s", "eff. %", "95 %", "comm ms",
             "exposed", "idle", "GiB", "predicted", "off %");
}

const Samples& ScalingReport::base(const Samples& point) const {
  const auto found = std::ranges::find_if(points_, [&](const Samples& one) {
    return text(one, "scale") == text(point, "scale") && text(one, "mode") == text(point, "mode");
  });
  return found == points_.end() ? point : *found;
}

void ScalingReport::add(Samples point) {
  set_field(point, "base", text(base(point), "layout"));
  set_field(point, "order", static_cast<std::int64_t>(points_.size()));
  points_.push_back(std::move(point));
  add_metrics(points_.back());
  set_.add(points_.back());
  print(points_.back());
}

void ScalingReport::refuse(const std::string& point, const std::string& why) {
  fmt::print("#   {:<28}no measurement: {}\n", point, why);
}

void ScalingReport::add_metrics(const Samples& point) {
  const auto reading = [&](const char* what, double value) {
    if (!std::isnan(value)) set_.add(results::metric(point.path + "/" + what, value));
  };
  const results::Summary time_s = results::summarize(step_times(point));
  const double tokens = number(point, "tokens");
  set_.add(results::metric(point.path + "/step_time", time_s));
  set_.add(results::rate_metric(point.path + "/tokens_per_s", tokens, time_s));
  if (&base(point) != &point) set_.add(efficiency(point, base(point)));
  const auto eager = std::ranges::find_if(points_, [&](const Samples& one) {
    return text(one, "mode") == "off" && text(one, "scale") == text(point, "scale") &&
           text(one, "layout") == text(point, "layout");
  });
  if (eager != points_.end() && &*eager != &point) set_.add(graph_gain(point, *eager));
  reading("communication", number(point, "communication_s"));
  reading("exposed_communication", number(point, "exposed_communication_s"));
  reading("exposed_copy", number(point, "exposed_copy_s"));
  reading("idle", number(point, "idle_s"));
  reading("device_bytes", number(point, "device_bytes"));
  reading("j_per_token", number(point, "energy_j") / (tokens * static_cast<double>(time_s.count)));
  const double prediction = number(point, "predicted_time_s") / time_s.median - 1;
  reading("prediction", prediction);
  if (!std::isnan(prediction))
    worst_prediction_ = std::max(worst_prediction_, std::abs(prediction));
}

void ScalingReport::print(const Samples& point) const {
  const results::Summary time_s = results::summarize(step_times(point));
  const results::Metric part = efficiency(point, base(point));
  const double predicted_s = number(point, "predicted_time_s");
  fmt::print(
      "#   {:<28}{:>6}{:>7}{:>11.3f}{:>11.0f}{:>8.1f}{:>15}{:>9.3f}{:>9.3f}{:>9.3f}{:>9.3f}{}\n",
      point.path.substr(point.path.find('/') + 1), point.ranks, number(point, "global_batch"),
      1e3 * time_s.median, number(point, "tokens") / time_s.median, 100 * part.value,
      percent(part.ci95), 1e3 * number(point, "communication_s"),
      1e3 * number(point, "exposed_communication_s"), 1e3 * number(point, "idle_s"),
      forecast::gib(number(point, "device_bytes")),
      std::isnan(predicted_s) ? fmt::format("{:>11}{:>8}", "-", "-")
                              : fmt::format("{:>11.3f}{:>8.1f}", 1e3 * predicted_s,
                                            100 * (predicted_s / time_s.median - 1)));
  std::fflush(stdout);  // a curve takes hours, and is watched
}

execution::Exit ScalingReport::finish(std::size_t left) {
  results::Verdict verdict;
  double differing = 0;
  for (const Samples& point : points_) differing += number(point, "differing");
  verdict.add(results::at_least("points", static_cast<double>(points_.size()), left > 0 ? 0 : 1,
                                "points measured"));
  verdict.add(results::at_most("first_loss", loss_distance(points_), loss_band(deck_),
                               "largest relative distance of the loss of the first step from that "
                               "of the first layout with the same batch"));
  verdict.add(results::equal("other_states", other_states(points_), 0,
                             "points whose state after warm-up is not that of the same grid and "
                             "batch, whatever the graphs and the sharding of optimizer states"));
  verdict.add(results::equal("copies_that_differ", differing, 0,
                             "tensors of the state that ranks share and hold other bits of"));
  if (left > 0) {
    verdict.stop();
    verdict.remark(fmt::format("{} points are left: the same command with --resume goes on", left));
    fmt::print("# stopped: {}\n", verdict.remark());
  }
  std::optional<results::Metric> headline;
  if (!points_.empty()) headline = efficiency(points_.back(), base(points_.back()));
  if (std::ranges::any_of(
          points_, [](const Samples& one) { return find(one, "predicted_time_s") != nullptr; })) {
    headline = results::metric("scaling/worst_prediction", worst_prediction_);
    set_.add(*headline);
  }
  set_.finish(verdict);
  fmt::print("{}{}", results::validation_text(verdict),
             results::verdict_line(verdict, headline, set_.uuid(), set_.path()));
  return verdict.exit();
}

}  // namespace stowage::drivers
