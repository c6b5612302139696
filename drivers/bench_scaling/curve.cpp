#include "drivers/bench_scaling/curve.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "drivers/bench_scaling/measure.hpp"
#include "drivers/bench_scaling/report.hpp"
#include "drivers/bench_scaling/resume.hpp"
#include "forecast/plan/options.hpp"
#include "forecast/plan/read_deck.hpp"
#include "inputs/data/run_section.hpp"
#include "parallel/job/agreement.hpp"
#include "parallel/job/signals.hpp"
#include "results/progress.hpp"
#include "run/command/output_files.hpp"
#include "run/command/same_deck.hpp"
#include "run/machine/agreement.hpp"
#include "run/machine/machine.hpp"
#include "run/record/result_config.hpp"

namespace stowage::drivers {
namespace {

using execution::Exit;
using inputs::Deck;
using parallel::Communicator;
using results::Samples;

/// Of the result set's default path (benchmark_path).
constexpr std::string_view kScalingPath = "scaling";

std::filesystem::path output_path(const Deck& deck) {
  return run::benchmark_path(deck, kScalingPath);
}

/// Points have grids of their own, the job has none.
results::ResultHeader header_of(const Deck& deck, const std::string& json,
                                const std::vector<results::RankInfo>& ranks,
                                const run::Machine& machine, int argc, const char* const* argv) {
  const results::RunInfo run =
      results::begin_run(argc, argv, static_cast<std::int64_t>(ranks.size()),
                         inputs::read(deck, &inputs::RunConfig::seed));
  results::ResultHeader header =
      run::result_header("bench_scaling", deck, run, ranks, machine.software());
  header.grid.clear();
  header.json = json;
  return header;
}

class Curve {
 public:
  Curve(const Communicator& world, const CurveCommand& curve, const Deck& deck, double start_s)
      : world_(world),
        curve_(curve),
        deck_(deck),
        start_s_(start_s),
        points_(scaling_points(deck, curve.options)),
        machine_(deck, world),
        ranks_(gather_ranks(world, machine_)) {}

  Exit go(int argc, const char* const* argv) {
    if (curve_.resume) take_earlier();
    if (world_.rank() == 0)
      report_ = std::make_unique<ScalingReport>(
          deck_, header_of(deck_, curve_.command.json, ranks_, machine_, argc, argv),
          output_path(deck_));
    std::size_t left = points_.size();
    for (const ScalingPoint& point : points_) {
      if (!earlier(point) && !next(point)) break;
      --left;
    }
    const Exit exit = report_ ? report_->finish(left) : Exit::valid;
    return static_cast<Exit>(world_.max(static_cast<std::int64_t>(exit)));
  }

 private:
  /// Rank 0 reads, and what it objects to all refuse.
  void take_earlier() {
    std::string objection, names;
    if (world_.rank() == 0) try {
        earlier_ = measured_before(output_path(deck_), deck_, ranks_, curve_.options);
      } catch (const execution::Error& error) {
        if (error.exit() != Exit::usage) throw;
        objection = error.what();
      }
    objection = run::first_objection(world_, objection);
    if (!objection.empty()) execution::throw_usage("{}", objection);
    for (const Samples& one : earlier_) names += one.path + "\n";
    known_ = world_.broadcast(names);
  }

  /// Whether a point is known from an earlier job; it is reported then.
  bool earlier(const ScalingPoint& point) {
    const std::string path = "scaling/" + point.name();
    if (known_.find(path + "\n") == std::string::npos) return false;
    if (report_) report_->add(*std::ranges::find(earlier_, path, &Samples::path));
    return true;
  }

  bool asked() const {
    return parallel::stop_signal() != 0 || (curve_.options.time_limit_s > 0 &&
                                            results::steady_seconds() - start_s_ >=
                                                static_cast<double>(curve_.options.time_limit_s));
  }

  /// Measures a point on the first ranks; the others wait without holding their cores. False if the
  /// job is to stop.
  bool next(const ScalingPoint& point) {
    if (world_.max(asked() ? 1 : 0) != 0) return false;
    const bool works = world_.rank() < point.layout.ranks();
    const Communicator ranks = world_.split(works ? 0 : 1, world_.rank());
    ScalingOutcome outcome;
    if (works) outcome = measure(point, curve_.options, ranks, machine_, [&] { return asked(); });
    MPI_Request request = MPI_REQUEST_NULL;
    STOWAGE_MPI(MPI_Ibarrier(world_.handle(), &request));
    parallel::wait(request);
    if (world_.max(outcome.stopped ? 1 : 0) != 0) return false;
    if (report_ && outcome.samples)
      report_->add(std::move(*outcome.samples));
    else if (report_)
      report_->refuse(point.name(), outcome.refused);
    return true;
  }

  const Communicator& world_;
  const CurveCommand& curve_;
  const Deck& deck_;
  double start_s_;
  std::vector<ScalingPoint> points_;
  run::Machine machine_;
  std::vector<results::RankInfo> ranks_;
  std::vector<Samples> earlier_;           ///< on rank 0
  std::string known_;                      ///< their paths, a line each
  std::unique_ptr<ScalingReport> report_;  ///< on rank 0
};

}  // namespace

Exit measure_curve(const Communicator& world, const CurveCommand& curve, int argc,
                   const char* const* argv) {
  const double start_s = results::steady_seconds();
  const Deck deck =
      without_layout(forecast::read_measured_deck(curve.command, curve.rates, world.rank() == 0));
  if (curve.command.print_config) {
    if (world.rank() == 0) fmt::print("{}", deck.text());
    return Exit::valid;
  }
  run::require_same_deck(world, deck);
  const inputs::Data data = open_data(deck);  // what is wrong with it is told before any work
  parallel::require_equal(world, "data", data.digest());
  std::vector<results::NamedPath> inputs = run::input_files(deck, curve.command, data);
  for (results::NamedPath& file : curve.rates.files()) inputs.push_back(std::move(file));
  results::require_apart(run::benchmark_outputs(deck, curve.command, kScalingPath), inputs);
  return Curve(world, curve, deck, start_s).go(argc, argv);
}

}  // namespace stowage::drivers
