#include "drivers/plan/command.hpp"

#include <fmt/core.h>

#include <limits>
#include <utility>
#include <vector>

#include "drivers/plan/timeline.hpp"
#include "forecast/layouts/largest.hpp"
#include "forecast/layouts/layouts.hpp"
#include "forecast/layouts/training_cost.hpp"
#include "forecast/plan/memory_fit.hpp"
#include "forecast/plan/parallel_section.hpp"
#include "forecast/plan/rank_digest.hpp"
#include "results/line_file.hpp"
#include "run/command/output_files.hpp"
#include "version/version.hpp"

namespace stowage::drivers {
namespace {

using execution::throw_usage;

/// @throws Error (exit 2) if options do not go together; those of layouts are named by `search`
void check_together(const PlanCommand& c, bool layouts, const std::string& search) {
  if (c.best && !layouts) throw_usage("--best {} shows layouts: give --ranks or --fewest", *c.best);
  if (c.quick && !layouts)
    throw_usage("--quick: is for a search of layouts: give --ranks or --fewest");
  const bool table = c.longest || !c.largest.empty();
  if (c.longest && !c.largest.empty()) throw_usage("--longest: not with --largest");
  if (!c.largest.empty()) static_cast<void>(forecast::parse_growing(c.largest));
  if (layouts && (c.timeline || table || !c.stage.empty()))
    throw_usage("{}: not with --timeline, --longest, --largest or --stage", search);
  const bool digest = c.digest || c.digest_ops;
  if ((!c.tokens.empty() || !c.line.json.empty()) && (c.timeline || table || digest))
    throw_usage("{}: not with --timeline, --longest, --largest or --digest",
                c.tokens.empty() ? "--json" : "--tokens");
  if (table && (c.timeline || !c.stage.empty()))
    throw_usage("{}: not with --timeline or --stage", c.longest ? "--longest" : "--largest");
  if (c.options.tensors && (table || c.timeline || layouts))
    throw_usage("--tensors: not with --ranks, --longest, --largest or --timeline");
  if (digest && (table || c.timeline || c.options.tensors || layouts))
    throw_usage("--digest: not with --ranks, --longest, --largest, --timeline or --tensors");
  if (!c.trace.empty() && !c.timeline)
    throw_usage("--trace {}: is of a timeline: give --timeline", c.trace);
  if (c.options.columns < 1 || c.options.columns > 1000)
    throw_usage("--columns {}: must be between 1 and 1000", c.options.columns);
}

/// @param trace where it is written; empty: nowhere
/// @param inputs what the trace must not replace
std::string timeline_text(const inputs::Deck& deck, const std::string& trace,
                          const std::vector<results::NamedPath>& inputs, int columns) {
  forecast::require_rates(deck, "--timeline");
  if (!trace.empty()) results::require_apart({{{"--trace", trace}}}, inputs);
  const PipelinePicture picture(deck);
  if (!trace.empty()) {
    results::PartFile part(trace, results::FileKind::trace);
    picture.write(part);
  }
  return picture.text(columns);
}

}  // namespace

PlanCommand parse_plan_command(int argc, const char* const* argv) {
  PlanCommand c;
  constexpr std::int64_t kNotGiven = std::numeric_limits<std::int64_t>::min();
  std::int64_t ranks = kNotGiven, best = kNotGiven;
  c.line = inputs::parse_command_line(
      argc, argv,
      {.name = "stowage_plan",
       .summary = "Plans the training step of a deck and prints the plan: memory over the step, "
                  "what goes where and why, predicted time. Needs no device.",
       .version = fmt::format("{} ({})", version::build_info().release,
                              version::build_info().git_describe),
       .options = {{"--stage", "Plan stage p of a pipeline of P: p/P", &c.stage, "p/P"},
                   {"--timeline", "Draw what all stages of the pipeline do when", &c.timeline},
                   {"--trace", "Write the timeline as a Chrome trace to this file", &c.trace,
                    "FILE"},
                   {"--ranks", "Find the best layouts of so many ranks", &ranks},
                   {"--fewest", "Find the fewest ranks on which a layout fits", &c.fewest},
                   {"--best", "How many layouts are shown (5)", &best},
                   {"--quick", "Find layouts in seconds, by few and small plans", &c.quick},
                   {"--tokens", "What so many take: days, GPU-hours, kWh; 300e9, 300B or 1T",
                    &c.tokens, "N"},
                   {"--longest", "Find the longest sequence that fits, by policy", &c.longest},
                   {"--largest", "Find the deepest or widest model of this pattern that fits",
                    &c.largest, "depth|width"},
                   {"--machine",
                    "Memory and rates of h200 or another of inputs/machines/, or from this file",
                    &c.rates.machine, "NAME|FILE"},
                   {"--ceilings", "Rates from this result set of stowage_ceilings",
                    &c.rates.ceilings, "FILE"},
                   {"--links", "Links from these of stowage_bench_comm, by ranks: A.h5,B.h5",
                    &c.rates.links, "LIST"},
                   {"--ops", "Times of ops from these of stowage_train --time-ops: A.h5,B.h5",
                    &c.rates.ops, "LIST"},
                   {"--tensors", "List every saved tensor", &c.options.tensors},
                   {"--columns", "Width of the picture", &c.options.columns},
                   {"--digest", "Digests of programs and plans, to compare builds", &c.digest},
                   {"--digest-ops", "The same with every op and part of a plan", &c.digest_ops}},
       .json_help = "Write the figures as a line of JSON, too",
       .without = {"--out", "--dry-run", "--quiet"}});
  if (ranks != kNotGiven) c.ranks = ranks;
  if (best != kNotGiven) c.best = best;
  return c;
}

PlanAnswer answer(PlanCommand c) {
  if (!c.line.print_and_exit.empty()) return {c.line.print_and_exit};
  if (c.ranks && c.fewest) throw_usage("--ranks {}: not with --fewest, which finds it", *c.ranks);
  const bool layouts = c.ranks || c.fewest;
  check_together(c, layouts,
                 c.fewest || !c.ranks ? "--fewest" : fmt::format("--ranks {}", *c.ranks));
  PlanOptions& options = c.options;
  if (!c.tokens.empty()) options.tokens = forecast::parse_tokens(c.tokens);
  if (!c.stage.empty()) {
    const StageOf one = parse_stage(c.stage);
    c.line.overrides.push_back(
        inputs::override_of(&forecast::ParallelConfig::pipeline, std::to_string(one.stages)));
    options.stage = one.stage;
  }
  const inputs::Deck deck = forecast::read_measured_deck(c.line, c.rates);
  if (c.line.print_config) return {deck.text()};
  std::vector<results::NamedPath> read = run::deck_files(deck, c.line);
  for (results::NamedPath& file : c.rates.files()) read.push_back(std::move(file));
  if (!c.line.json.empty()) results::require_apart({{{"--json", c.line.json}}}, read);
  const auto write_json = [&](const std::string& line) {
    if (!c.line.json.empty())
      results::LineFile(c.line.json, results::FileKind::json_lines, false).write(line);
  };
  if (layouts) {
    forecast::LayoutQuestion question;
    question.quick = c.quick;
    question.tokens = options.tokens;
    question.ranks = c.ranks;
    if (c.best) question.most = *c.best;
    const forecast::LayoutAnswer found = forecast::find_layouts(deck, question);
    write_json(found.json);
    return {found.text};
  }
  if (c.timeline) return {timeline_text(deck, c.trace, read, static_cast<int>(options.columns))};
  if (c.digest || c.digest_ops)
    return {forecast::digest_text(deck, c.stage.empty() ? -1 : options.stage, c.digest_ops)};
  if (c.longest) return {forecast::largest_text(deck, forecast::Growing::length)};
  if (!c.largest.empty()) return {forecast::largest_text(deck, forecast::parse_growing(c.largest))};
  const PlanReport report = plan_report(deck, options);
  write_json(report.json);
  return {report.text, report.fits ? execution::Exit::valid : execution::Exit::invalid};
}

}  // namespace stowage::drivers
