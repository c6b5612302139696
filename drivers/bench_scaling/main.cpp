// stowage_bench_scaling: how fast a deck's step is on more ranks, and on other layouts of them.

#include <fmt/core.h>

#include "drivers/bench_scaling/curve.hpp"
#include "drivers/bench_scaling/foretell.hpp"
#include "drivers/common/read_deck.hpp"
#include "drivers/common/words.hpp"
#include "execution/error.hpp"
#include "inputs/deck/command_line.hpp"
#include "parallel/agreement.hpp"
#include "parallel/run_main.hpp"
#include "version/version.hpp"

// NOLINTNEXTLINE(bugprone-exception-escape): run_main reports what the program throws
int main(int argc, char** argv) {
  using namespace stowage;
  const auto program = [&](const parallel::Communicator& world) {
    drivers::CurveCommand curve;
    std::string layouts = "d=1", scales = "strong", modes = "off";
    drivers::MeasuredRates& rates = curve.rates;
    bool foretell = false;
    curve.command = inputs::parse_command_line(
        argc, argv,
        {.name = "stowage_bench_scaling",
         .summary =
             "Times the training step of a deck on parts of a job's ranks, layout by layout.",
         .version = fmt::format("{} ({})", version::build_info().release,
                                version::build_info().git_describe),
         .options =
             {{"--layouts", "Such as \"d=1, d=2, t=2, d=2 zero\"; axes t, c, e, p (v: stages), d",
               &layouts},
              {"--scales", "Some of strong,weak (default strong)", &scales},
              {"--modes", "Graph modes: some of off,scopes,step (default off)", &modes},
              {"--samples", "Timed steps of a point (default 20)", &curve.options.samples},
              {"--time-limit", "Stop so many seconds after the start, with exit code 75",
               &curve.options.time_limit_s},
              {"--ceilings", "Predict by this result set of stowage_ceilings", &rates.ceilings},
              {"--links", "Predict by these of stowage_bench_comm: A.h5,B.h5", &rates.links},
              {"--ops", "Predict by these of stowage_train --time-ops: A.h5,B.h5", &rates.ops},
              {"--foretell", "Predict the points of the set of --from anew, and measure nothing",
               &foretell},
              {"--resume", "Take the points that run.output holds from it", &curve.resume}},
         .without = {"--json", "--dry-run", "--quiet"}});
    const std::string mode = curve.command.mode();
    parallel::require_equal(world, "modes", foretell && mode == "a run" ? "--foretell" : mode);
    if (!curve.command.print_and_exit.empty()) {
      if (world.rank() == 0) fmt::print("{}", curve.command.print_and_exit);
      return execution::Exit::valid;
    }
    if (curve.options.samples < 1)
      execution::throw_usage("--samples {}: must be at least 1", curve.options.samples);
    if (curve.options.time_limit_s < 0)
      execution::throw_usage("--time-limit {}: must be at least 0 (no limit)",
                             curve.options.time_limit_s);
    drivers::add_measured(curve.command, rates);
    if (foretell) {
      if (curve.command.from.empty())
        execution::throw_usage("--foretell: is of the points of a set: give --from SET.h5");
      if (world.rank() == 0)
        fmt::print("{}",
                   drivers::foretell(curve.command.from,
                                     drivers::without_layout(drivers::read_deck(curve.command))));
      return execution::Exit::valid;
    }
    curve.options.layouts = drivers::parse_layouts(layouts, world.size());
    curve.options.scales = drivers::words(scales);
    curve.options.modes = drivers::words(modes);
    drivers::require_words("--scales", curve.options.scales, {"strong", "weak"});
    drivers::require_words("--modes", curve.options.modes, {"off", "scopes", "step"});
    return drivers::measure_curve(world, curve, argc, argv);
  };
  return parallel::run_main(argc, argv, program, parallel::Stops::between_steps);
}
