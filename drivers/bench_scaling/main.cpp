// stowage_bench_scaling: how fast a deck's step is on more ranks, and on other layouts of them.

#include <fmt/core.h>

#include "drivers/bench_scaling/curve.hpp"
#include "drivers/bench_scaling/predict_curve.hpp"
#include "execution/error.hpp"
#include "forecast/plan/read_deck.hpp"
#include "inputs/deck/command_line.hpp"
#include "inputs/deck/words.hpp"
#include "parallel/run_main.hpp"
#include "run/command/same_deck.hpp"
#include "version/version.hpp"

// NOLINTNEXTLINE(bugprone-exception-escape): run_main reports what the program throws
int main(int argc, char** argv) {
  using namespace stowage;
  const auto program = [&](const parallel::Communicator& world) {
    drivers::CurveCommand curve;
    std::string layouts = "d=1", scales = "strong", modes = "off";
    forecast::MeasuredRates& rates = curve.rates;
    bool predict = false;
    curve.command = inputs::parse_command_line(
        argc, argv,
        {.name = "stowage_bench_scaling",
         .summary =
             "Times the training step of a deck on parts of a job's ranks, layout by layout.",
         .version = fmt::format("{} ({})", version::build_info().release,
                                version::build_info().git_describe),
         .options =
             {{"--layouts", "Such as \"d=1, d=2, t=2, d=2 zero\"; axes t, c, e, p (v: stages), d",
               &layouts, "LIST"},
              {"--scales", "Some of strong,weak (default strong)", &scales, "LIST"},
              {"--modes", "Graph modes: some of off,scopes,step (default off)", &modes, "LIST"},
              {"--samples", "Timed steps of a point (default 20)", &curve.options.samples},
              {"--time-limit", "Stop so many seconds after the start, with exit code 75 (0: never)",
               &curve.options.time_limit_s},
              {"--ceilings", "Predict by this result set of stowage_ceilings", &rates.ceilings,
               "FILE"},
              {"--links", "Predict by these of stowage_bench_comm: A.h5,B.h5", &rates.links,
               "LIST"},
              {"--ops", "Predict by these of stowage_train --time-ops: A.h5,B.h5", &rates.ops,
               "LIST"},
              {"--predict", "Predict the points of the set of --from anew, and measure nothing",
               &predict},
              {"--foretell", "", &predict},  // the earlier name of --predict
              {"--resume", "Take the points that run.output holds from it", &curve.resume}},
         .without = {"--dry-run", "--quiet"}});
    run::require_same_command(world, curve.command);
    if (!curve.command.print_and_exit.empty()) {
      if (world.rank() == 0) fmt::print("{}", curve.command.print_and_exit);
      return execution::Exit::valid;
    }
    if (curve.options.samples < 1)
      execution::throw_usage("--samples {}: must be at least 1", curve.options.samples);
    if (curve.options.time_limit_s < 0)
      execution::throw_usage("--time-limit {}: must be at least 0 (no limit)",
                             curve.options.time_limit_s);
    if (predict) {
      if (curve.command.from.empty())
        execution::throw_usage("--predict: is of the points of a set: give --from SET.h5");
      if (world.rank() == 0)
        fmt::print(
            "{}", drivers::predict_curve(
                      curve.command.from,
                      drivers::without_layout(forecast::read_measured_deck(curve.command, rates))));
      return execution::Exit::valid;
    }
    curve.options.layouts = drivers::parse_layouts(layouts, world.size());
    curve.options.scales = inputs::words(scales);
    curve.options.modes = inputs::words(modes);
    inputs::require_words("--scales", curve.options.scales, {"strong", "weak"});
    inputs::require_words("--modes", curve.options.modes, {"off", "scopes", "step"});
    return drivers::measure_curve(world, curve, argc, argv);
  };
  return parallel::run_main(argc, argv, program, parallel::Stops::between_steps);
}
