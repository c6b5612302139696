#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "results/file_lock.hpp"
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
  /// Throws Error(Exit::usage) if the file cannot be written, is not free (output_path.hpp), or is
  /// being written by another run.
  explicit JsonLog(const std::filesystem::path& path, bool append = false);

  void write(std::string_view event, const Fields& fields);
  void write(const Metric& metric);
  void write(const Verdict& verdict);

  /// False once a line could not be written, as on a full disk.
  bool complete() const { return !warned_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void write_line(const std::string& line);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::optional<LockedFile> lock_;
  std::unique_ptr<std::FILE, Close> file_;
  std::filesystem::path path_;
  bool warned_ = false;
};

}  // namespace stowage::results
