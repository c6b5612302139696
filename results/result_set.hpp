#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "results/ceilings_reference.hpp"
#include "results/metric.hpp"
#include "results/provenance.hpp"
#include "results/value.hpp"
#include "results/verdict.hpp"

namespace stowage::results {

inline constexpr std::string_view kResultSchema = "stowage-result";
inline constexpr std::string_view kSchemaVersion = "1.8";

/// What is known about a run before its first step.
struct ResultHeader {
  std::string driver;         ///< "train"
  std::string deck_given;     ///< the deck file as it was read; empty: none was given
  std::string deck_resolved;  ///< every key with its value: itself a valid deck
  Fields config;              ///< one per key, as "train.lr"
  /// SHA-256 of the keys that decide what a step computes; empty: no step is computed.
  std::string numerics_sha256 = {};
  RunInfo run;
  std::vector<RankInfo> ranks;
  Fields software;  ///< from software()
  std::vector<FileRecord> files;
  Fields grid = {};  ///< process grid: the extent of each axis; empty: ranks have no grid
  std::filesystem::path json = {};  ///< metrics and verdict go there, too, as JSON lines; or empty
};

/// One quantity of a series.
struct SeriesColumn {
  std::string name;  ///< "loss"
  std::string unit;  ///< SI base unit
  std::string help;
  std::vector<std::int64_t> shape = {};  ///< of one entry: empty for a scalar, {ranks} for a row
};

/// Quantities recorded together, at increasing values of one scale: /series/<group>/<column> along
/// /series/<group>/<scale>. Rows are held in memory (8 bytes a number) until the file is finished;
/// the JSON lines beside it are what to watch, and what survives a kill.
class Series {
 public:
  /// Appends one entry: `values` holds all columns in order, each of its shape.
  void append(std::int64_t at, std::span<const double> values);
  void append(std::int64_t at, std::initializer_list<double> values) {
    append(at, std::span(values.begin(), values.size()));
  }

  std::int64_t size() const { return static_cast<std::int64_t>(at_.size()); }

  /// All entries of a scalar column, in order.
  std::vector<double> column(std::string_view name) const;

 private:
  friend class ResultSet;
  Series(std::string group, std::string scale, std::vector<SeriesColumn> columns);

  std::string group_;
  std::string scale_;
  std::vector<SeriesColumn> columns_;
  std::int64_t width_ = 0;
  std::vector<std::int64_t> at_;
  std::vector<double> values_;  // (entries, width_)
};

/// Raw repetitions of one measurement, in seconds: shape (repetitions) or (repetitions, ranks).
struct Samples {
  std::string path;  ///< "train/step_time", "kernels/ssd_fwd/bf16_b2_t8192"
  std::vector<double> time_s;
  std::int64_t ranks = 1;
  Fields attributes = {};  ///< such as flops, bytes_read, bytes_written, ceiling
};

/// A measured limit of the machine as a function of size.
struct Ceiling {
  std::string name;  ///< "gemm_bf16", "h2d"
  std::string unit;  ///< "FLOP/s", "B/s"
  std::vector<double> size;
  std::vector<double> value;
};

/// What a library was made to do where it has a choice: the same choice gives the same bits.
struct Choice {
  std::string library;  ///< "cublasLt"
  std::string what;     ///< "16384x8192x2048 NT bf16>bf16"
  std::string chosen;   ///< "algo 66, tile 393, …"
  std::string source;   ///< who chose: "table", "heuristics", "deck", "environment"
};

/// What a plan does with the saved tensors of one module name in a step, on rank 0.
struct ModuleCopies {
  std::string plan;    ///< "auto_55/off"; "deck": of the run
  std::string module;  ///< "mamba_in_proj"
  std::int64_t bytes = 0;
  std::int64_t offloaded_bytes = 0;
  std::int64_t recomputed_bytes = 0;
  std::int64_t copies = 0;     ///< to the host; as many come back
  double d2h_bytes_per_s = 0;  ///< while they run; NaN if they were not timed, or there are none
  double h2d_bytes_per_s = 0;
  double exposed_s = 0;  ///< compute waits for them, both ways; NaN if that was not timed
};

/// What a plan needs and does on the first rank of a pipeline's stage.
struct StageNeeds {
  std::string plan;
  std::int64_t stage = 0;
  std::int64_t persistent_bytes = 0;
  std::int64_t transient_bytes = 0;
  std::int64_t host_bytes = 0;
  std::int64_t copies = 0;  ///< to the host in a step; as many come back
  std::int64_t offloaded_bytes = 0;
  std::int64_t reruns = 0;
  double predicted_time_s = 0;  ///< of the step, with what the other stages are waited for
  double exposed_s = 0;         ///< compute waits for copies; NaN if that was not timed
};

/// All that a run keeps from step to step as one number: equal digests, equal bits.
struct StateAt {
  std::int64_t step = 0;  ///< after it
  std::string digest;     ///< 32 hexadecimal digits
};

/// The checkpoint that a run goes on from, and by it the legs before.
struct ResumedFrom {
  std::string checkpoint;  ///< its file, without folders if it was absolute
  std::int64_t step = 0;   ///< steps done
  std::string seal;        ///< digest of its seal
  std::string run;         ///< uuid of the run that wrote it; empty: it does not say
};

/// The result set of one run, written by rank 0 alone; schema in results/schema.md.
///
/// The file grows under `<path>.part` and takes its name in `finish`. If the run ends otherwise, no
/// file has the final name; a `.part` with verdict UNFINISHED stays if it holds a series.
class ResultSet {
 public:
  /// Writes the header. Throws Error(Exit::usage) if the path cannot be written.
  ResultSet(std::filesystem::path path, const ResultHeader& header);
  ~ResultSet();

  /// The reference stays valid as long as the result set.
  Series& series(std::string group, std::string scale, std::vector<SeriesColumn> columns);

  void add(Metric metric);  ///< a tag added twice keeps the later value
  void add(Samples samples);
  void add(Ceiling ceiling);
  void add(FileRecord file);
  void add(Choice choice);
  void add(ModuleCopies row);
  void add(StageNeeds row);
  void add(StateAt state);                        ///< in the order of steps
  void refer(const CeilingsReference& ceilings);  ///< the limits that shares in it are of
  void refer(const ResumedFrom& resumed);         ///< where its first step follows

  const std::vector<Metric>& metrics() const;
  const std::filesystem::path& path() const;
  const std::string& uuid() const;

  /// Writes all that was added, verdict and stop time; closes, syncs and renames. Call once.
  /// @return what an older set of this name is named now; empty if there was none
  std::filesystem::path finish(const Verdict& verdict);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The resolved deck of a result set, for `--from`. Throws Error(Exit::usage) for a file that is
/// not a result set, is truncated, or has no deck.
std::string read_config(const std::filesystem::path& path);

}  // namespace stowage::results
