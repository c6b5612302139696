#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drivers/bench_kernels/case.hpp"
#include "results/h5.hpp"
#include "results/line_file.hpp"
#include "results/part_file.hpp"
#include "results/verdict.hpp"
#include "run/measure/record.hpp"
#include "run/measure/timer.hpp"

namespace stowage::drivers::bench {

/// What the command line asks for.
struct BenchOptions {
  run::MeasureOptions measure;
  bool list = false;
  std::vector<std::string> ops;              ///< empty: all
  std::vector<std::string> shapes;           ///< empty: those of the operator
  std::vector<std::string> implementations;  ///< empty: all that this build can run
  std::string dump;                          ///< inputs and outputs go here
  std::string ceilings;                      ///< result set of stowage_ceilings
  std::string product_table;                 ///< rows of the search for products are added to it
};

/// The operators with their sizes and implementations, and why a peer is missing.
std::string list_text(const std::vector<Entry>& entries);

/// The entry of this name. Throws a usage error (exit 2) that lists the names.
const Entry& find_entry(const std::vector<Entry>& entries, const std::string& name);

/// Checks, times, records and prints operators, one row per implementation.
class Bench {
 public:
  /// Opens the dump and the table of products; prints the head of the report.
  Bench(run::Gpu& gpu, run::Record& record, results::Verdict& verdict, const BenchOptions& options);

  /// Returns the tag of a metric of it, for the verdict line.
  std::string run(const Entry& entry, const Shape& shape);

  /// Completes the dump, once all that was asked for has run.
  void finish();

 private:
  std::vector<Implementation> chosen(const Entry& entry) const;
  std::vector<Agreement> check(Case& one, const std::string& label,
                               const std::string& implementation);
  void dump(const Case& one, const std::string& label, const std::string& implementation);
  /// @param copy_s median time of a copy of the operator's bytes in the same rounds, or NaN
  void report(const execution::Cost& cost, const std::string& tag,
              const Implementation& implementation, std::vector<double> time_s,
              const std::vector<Agreement>& agreements, double copy_s);

  run::Gpu& gpu_;
  run::Record& record_;
  results::Verdict& verdict_;
  const BenchOptions& options_;
  run::Timer timer_;
  std::optional<results::CeilingsReference> limits_;
  std::optional<results::PartFile> dump_part_;
  std::unique_ptr<results::h5::File> dump_;
  results::LineFile table_;  ///< rows of the search for products
};

}  // namespace stowage::drivers::bench
