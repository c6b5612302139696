#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "results/line_file.hpp"
#include "results/metric.hpp"
#include "results/value.hpp"
#include "results/verdict.hpp"

namespace stowage::results {

/// One JSON object a line, complete and flushed as it happens: for live watching (`tail -f`), and
/// what remains of a run that was killed. Every line has "event" and "time" (ISO 8601, UTC).
/// NaN and infinities are written as null. Default-constructed, it writes nothing.
class JsonLog {
 public:
  JsonLog() = default;

  /// Starts a log, an older one being kept aside, or continues one (`append`) after a restart.
  /// Throws Error(Exit::usage) as LineFile does.
  explicit JsonLog(const std::filesystem::path& path, bool append = false);

  void write(std::string_view event, const Fields& fields);
  void write(const Metric& metric);
  void write(const Verdict& verdict);

  /// Whose metrics and verdict follow.
  struct Benchmark {
    std::string driver, uuid;
    std::filesystem::path path;  ///< of its result set; empty: none was written
  };
  /// A whole benchmark, at its end.
  void write_outcome(const Benchmark& benchmark, const std::vector<Metric>& metrics,
                     const Verdict& verdict);

  /// False once a line could not be written, as on a full disk.
  bool complete() const { return lines_.complete(); }
  const std::filesystem::path& path() const { return lines_.path(); }

 private:
  LineFile lines_;
};

}  // namespace stowage::results
