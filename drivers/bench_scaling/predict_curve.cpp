#include "drivers/bench_scaling/predict_curve.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "drivers/bench_scaling/point.hpp"
#include "drivers/bench_scaling/resume.hpp"
#include "execution/error.hpp"
#include "forecast/plan/exposure.hpp"
#include "forecast/plan/options.hpp"
#include "forecast/plan/planned_rank.hpp"
#include "forecast/plan/trainer_plan.hpp"
#include "inputs/deck/check.hpp"
#include "offload/prediction.hpp"
#include "results/statistics.hpp"
#include "run/machine/agreement.hpp"
#include "run/machine/machine.hpp"

namespace stowage::drivers {
namespace {

using parallel::Axis;
using results::Samples;

/// Null if the point does not say it.
template <class T>
const T* find_field(const Samples& point, std::string_view name) {
  const auto found = std::ranges::find(point.attributes, name, &results::Field::name);
  return found == point.attributes.end() ? nullptr : std::get_if<T>(&found->value);
}

template <class T>
T field(const Samples& point, std::string_view name) {
  const T* value = find_field<T>(point, name);
  if (value == nullptr) execution::throw_usage("{}: does not say its {}", point.path, name);
  return *value;
}

ScalingPoint point_of(const inputs::Deck& deck, const Samples& point) {
  Layout layout;
  for (const Axis axis : parallel::kAllAxes)
    layout.shape.extent[axis] = static_cast<int>(field<std::int64_t>(point, parallel::name(axis)));
  layout.zero = field<std::int64_t>(point, "zero") == 1;
  if (const auto* stages = find_field<std::int64_t>(point, "virtual_stages"))
    layout.virtual_stages = static_cast<int>(*stages);
  return scaling_point(deck, field<std::string>(point, "scale"), layout,
                       field<std::string>(point, "mode"),
                       field<std::int64_t>(point, "global_batch"));
}

struct PointPrediction {
  double step_s = 0;     ///< of the slowest rank
  double exposed_s = 0;  ///< mean over ranks: communication with nothing computing beside
};

/// As the ranks of a job would plan it.
PointPrediction predict_point(const ScalingPoint& point) {
  PointPrediction all;
  const int ranks = point.layout.ranks();
  const std::int64_t microbatches = inputs::check_ranks(point.deck, ranks);
  const forecast::RunNeeds data = forecast::planned_data(point.deck).needs;
  const forecast::RunNeeds needs{.capacities = {data.capacities.back()}, .pairs = data.pairs};
  for (int rank = 0; rank < ranks; ++rank) {
    forecast::TrainerOptions options = forecast::trainer_options(
        point.deck, needs, microbatches, parallel::planned_ranks(point.layout.shape, rank),
        forecast::planned_order(point.deck));
    options.larger_classes = false;  // few steps run them
    const forecast::TrainerPlan run(options);
    const auto& training = *run.training().front();
    all.step_s = std::max(all.step_s, run.step_s(training));
    const auto exposures = forecast::predicted_exposure(
        training.plan,
        offload::predict(training.recorded.program, training.plan, run.options().planner.rates));
    if (const auto found = exposures.find(forecast::kAllGroups); found != exposures.end())
      all.exposed_s += found->second.exposed_s / ranks;
  }
  return all;
}

}  // namespace

std::string predict_curve(const std::string& path, const inputs::Deck& deck) {
  std::string text =
      fmt::format("#   {:<28}{:>11}{:>11}{:>8}{:>11}{:>8}{:>12}{:>9}\n", "point", "step ms", "then",
                  "off %", "predicted", "off %", "exposed ms", "predicted");
  double worst = 0;
  for (const Samples& point : stored_points(path)) {
    const double measured_s =
        results::summarize(
            run::largest_of_ranks(point.time_s, static_cast<std::size_t>(point.ranks)))
            .median;
    const auto* then = find_field<double>(point, "predicted_time_s");
    const double then_s = then == nullptr ? std::nan("") : *then;
    const PointPrediction now = predict_point(point_of(deck, point));
    const auto off = [&](double predicted_s) { return 100 * (predicted_s / measured_s - 1); };
    worst = std::max(worst, std::abs(off(now.step_s)));
    text += fmt::format("#   {:<28}{:>11.3f}{:>11.3f}{:>8.1f}{:>11.3f}{:>8.1f}{:>12.3f}{:>9.3f}\n",
                        point.path.substr(point.path.find('/') + 1), 1e3 * measured_s, 1e3 * then_s,
                        off(then_s), 1e3 * now.step_s, off(now.step_s),
                        1e3 * field<double>(point, "exposed_communication_s"), 1e3 * now.exposed_s);
  }
  return text + fmt::format("# off by {:.1f} % at most\n", worst);
}

}  // namespace stowage::drivers
