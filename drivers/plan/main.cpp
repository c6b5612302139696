// stowage_plan: shows how the training step of a deck would be planned, without a device.

#include <fmt/core.h>

#include <limits>
#include <string>
#include <vector>

#include "drivers/plan/plan.hpp"
#include "drivers/plan/timeline.hpp"
#include "execution/error.hpp"
#include "forecast/layouts/largest.hpp"
#include "forecast/layouts/layouts.hpp"
#include "forecast/layouts/training_cost.hpp"
#include "forecast/measured/measured_rates.hpp"
#include "forecast/plan/memory_fit.hpp"
#include "forecast/plan/options.hpp"
#include "forecast/plan/parallel_section.hpp"
#include "forecast/plan/rank_digest.hpp"
#include "forecast/plan/read_deck.hpp"
#include "parallel/run_main.hpp"
#include "results/line_file.hpp"
#include "run/command/output_files.hpp"
#include "version/version.hpp"

namespace {

/// @param trace where it is written; empty: nowhere
/// @param inputs what the trace must not replace
void draw_timeline(const stowage::inputs::Deck& deck, const std::string& trace,
                   const std::vector<stowage::results::NamedPath>& inputs, int columns) {
  using namespace stowage;
  forecast::require_rates(deck, "--timeline");
  if (!trace.empty()) results::require_apart({{{"--trace", trace}}}, inputs);
  const drivers::PipelinePicture picture(deck);
  if (!trace.empty()) {
    results::PartFile part(trace, results::FileKind::trace);
    picture.write(part);
  }
  fmt::print("{}", picture.text(columns));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace stowage;
  return parallel::run_main(argc, argv, [&](const parallel::Communicator& world) {
    drivers::PlanOptions options;
    bool longest = false, timeline = false, digest = false, digest_ops = false;
    bool fewest = false, quick = false;
    std::string stage, trace, tokens, largest;
    forecast::MeasuredRates rates;
    constexpr std::int64_t kNotGiven = std::numeric_limits<std::int64_t>::min();
    std::int64_t ranks = kNotGiven, best = kNotGiven;
    inputs::CommandLine command = inputs::parse_command_line(
        argc, argv,
        {.name = "stowage_plan",
         .summary = "Plans the training step of a deck and prints the plan: memory over the step, "
                    "what goes where and why, predicted time. Needs no device.",
         .version = fmt::format("{} ({})", version::build_info().release,
                                version::build_info().git_describe),
         .options = {{"--stage", "Plan stage p of a pipeline of P: p/P", &stage, "p/P"},
                     {"--timeline", "Draw what all stages of the pipeline do when", &timeline},
                     {"--trace", "Write the timeline as a Chrome trace to this file", &trace,
                      "FILE"},
                     {"--ranks", "Find the best layouts of so many ranks", &ranks},
                     {"--fewest", "Find the fewest ranks on which a layout fits", &fewest},
                     {"--best", "How many layouts are shown (5)", &best},
                     {"--quick", "Find layouts in seconds, by few and small plans", &quick},
                     {"--tokens", "What so many take: days, GPU-hours, kWh; 300e9, 300B or 1T",
                      &tokens, "N"},
                     {"--longest", "Find the longest sequence that fits, by policy", &longest},
                     {"--largest", "Find the deepest or widest model of this pattern that fits",
                      &largest, "depth|width"},
                     {"--machine",
                      "Memory and rates of h200 or another of inputs/machines/, or from this file",
                      &rates.machine, "NAME|FILE"},
                     {"--ceilings", "Rates from this result set of stowage_ceilings",
                      &rates.ceilings, "FILE"},
                     {"--links", "Links from these of stowage_bench_comm, by ranks: A.h5,B.h5",
                      &rates.links, "LIST"},
                     {"--ops", "Times of ops from these of stowage_train --time-ops: A.h5,B.h5",
                      &rates.ops, "LIST"},
                     {"--tensors", "List every saved tensor", &options.tensors},
                     {"--columns", "Width of the picture", &options.columns},
                     {"--digest", "Digests of programs and plans, to compare builds", &digest},
                     {"--digest-ops", "The same with every op and part of a plan", &digest_ops}},
         .json_help = "Write the figures as a line of JSON, too",
         .without = {"--out", "--dry-run", "--quiet"}});
    if (world.rank() != 0) return execution::Exit::valid;
    if (!command.print_and_exit.empty()) {
      fmt::print("{}", command.print_and_exit);
      return execution::Exit::valid;
    }
    if (ranks != kNotGiven && fewest)
      execution::throw_usage("--ranks {}: not with --fewest, which finds it", ranks);
    const bool layouts = ranks != kNotGiven || fewest;
    const std::string search = fewest ? "--fewest" : fmt::format("--ranks {}", ranks);
    if (best != kNotGiven && !layouts)
      execution::throw_usage("--best {} shows layouts: give --ranks or --fewest", best);
    if (quick && !layouts)
      execution::throw_usage("--quick: is for a search of layouts: give --ranks or --fewest");
    const bool table = longest || !largest.empty();
    if (longest && !largest.empty()) execution::throw_usage("--longest: not with --largest");
    const auto growing =
        largest.empty() ? forecast::Growing::length : forecast::parse_growing(largest);
    if (layouts && (timeline || table || !stage.empty()))
      execution::throw_usage("{}: not with --timeline, --longest, --largest or --stage", search);
    if ((!tokens.empty() || !command.json.empty()) && (timeline || table || digest || digest_ops))
      execution::throw_usage("{}: not with --timeline, --longest, --largest or --digest",
                             tokens.empty() ? "--json" : "--tokens");
    if (table && (timeline || !stage.empty()))
      execution::throw_usage("{}: not with --timeline or --stage",
                             longest ? "--longest" : "--largest");
    if (options.tensors && (table || timeline || layouts))
      execution::throw_usage("--tensors: not with --ranks, --longest, --largest or --timeline");
    if ((digest || digest_ops) && (table || timeline || options.tensors || layouts))
      execution::throw_usage(
          "--digest: not with --ranks, --longest, --largest, --timeline or --tensors");
    if (!trace.empty() && !timeline)
      execution::throw_usage("--trace {}: is of a timeline: give --timeline", trace);
    if (options.columns < 1 || options.columns > 1000)
      execution::throw_usage("--columns {}: must be between 1 and 1000", options.columns);
    if (!tokens.empty()) options.tokens = forecast::parse_tokens(tokens);
    if (!stage.empty()) {
      const drivers::StageOf one = drivers::parse_stage(stage);
      command.overrides.push_back(
          inputs::override_of(&forecast::ParallelConfig::pipeline, std::to_string(one.stages)));
      options.stage = one.stage;
    }
    const inputs::Deck deck = forecast::read_measured_deck(command, rates);
    if (command.print_config) {
      fmt::print("{}", deck.text());
      return execution::Exit::valid;
    }
    std::vector<results::NamedPath> read = run::deck_files(deck, command);
    for (results::NamedPath& file : rates.files()) read.push_back(std::move(file));
    if (!command.json.empty()) results::require_apart({{{"--json", command.json}}}, read);
    const auto write_json = [&](const std::string& line) {
      if (!command.json.empty())
        results::LineFile(command.json, results::FileKind::json_lines, false).write(line);
    };
    if (layouts) {
      forecast::LayoutQuestion question;
      question.quick = quick;
      question.tokens = options.tokens;
      if (!fewest) question.ranks = ranks;
      if (best != kNotGiven) question.most = best;
      const forecast::LayoutAnswer answer = forecast::find_layouts(deck, question);
      write_json(answer.json);
      fmt::print("{}", answer.text);
    } else if (timeline) {
      draw_timeline(deck, trace, read, static_cast<int>(options.columns));
    } else if (digest || digest_ops) {
      fmt::print("{}", forecast::digest_text(deck, stage.empty() ? -1 : options.stage, digest_ops));
    } else if (table) {
      fmt::print("{}", forecast::largest_text(deck, growing));
    } else {
      const drivers::PlanReport report = drivers::plan_report(deck, options);
      write_json(report.json);
      fmt::print("{}", report.text);
      if (!report.fits) return execution::Exit::invalid;
    }
    return execution::Exit::valid;
  });
}
