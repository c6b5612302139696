#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "results/json_log.hpp"
#include "results/result_set.hpp"
#include "run/measure/command.hpp"
#include "run/measure/gpu.hpp"

namespace stowage::run {

/// The result set of a benchmark, or only its table on the console when no file is asked for.
class Record {
 public:
  /// Prints the header.
  /// @param config what was asked for, as "ceilings.samples"; stored, and as text in place of a
  /// deck
  Record(const std::string& driver, const MeasureOptions& options, const Gpu& gpu,
         results::Fields config, const results::Fields& software);

  void add(results::Metric metric);
  void add(results::Samples samples);
  void add(results::Ceiling ceiling);
  void refer(const results::CeilingsReference& ceilings);
  /// nullptr without a file. The scale counts entries.
  results::Series* series(std::string group, std::string scale,
                          std::vector<results::SeriesColumn> columns);

  /// Prints the metrics as a table.
  void print_metrics() const;

  /// Finishes the file, prints the checks and the verdict.
  execution::Exit finish(const results::Verdict& verdict, const std::string& headline_tag);

 private:
  std::unique_ptr<results::ResultSet> set_;
  results::JsonLog json_;  ///< without a set, which has its own
  std::vector<results::Metric> metrics_;
  std::string driver_, uuid_;
  std::filesystem::path path_;
};

/// The command line as words: taken from the process, for the provenance.
std::vector<std::string> process_arguments();

}  // namespace stowage::run
