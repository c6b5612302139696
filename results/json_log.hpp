#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>

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

  /// Starts a log, or continues one (`append`) after a restart. Throws Error(Exit::usage) if the
  /// file cannot be written.
  explicit JsonLog(const std::filesystem::path& path, bool append = false);

  void write(std::string_view event, const Fields& fields);
  void write(const Metric& metric);
  void write(const Verdict& verdict);

 private:
  void write_line(const std::string& line);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  std::string path_;
  bool warned_ = false;
};

}  // namespace stowage::results
