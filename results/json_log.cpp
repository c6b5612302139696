#include "results/json_log.hpp"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "execution/error.hpp"
#include "results/format.hpp"
#include "results/output_path.hpp"

namespace stowage::results {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Value& value) {
  return std::visit([](const auto& held) { return Json(held); }, value);
}

// JSON has no NaN; the library writes null for it, which every reader takes as "missing".
std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json begin(std::string_view event) { return {{"event", std::string(event)}, {"time", utc_now()}}; }

}  // namespace

JsonLog::JsonLog(const std::filesystem::path& path, bool append) : path_(path) {
  require_free(path, FileKind::json_lines);
  const auto refuse = [&](std::string_view why) {
    execution::throw_usage("the JSON lines cannot be written to {}: {}", path.string(), why);
  };
  std::error_code ignored;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  try {
    lock_ = LockedFile::try_open(path);
    if (lock_ && !append && !keep_older(path).empty()) lock_ = LockedFile::try_open(path);
  } catch (const std::system_error& error) {
    refuse(error.code().message());
  }
  if (!lock_) refuse("another run is writing it");
  file_.reset(std::fopen(path.c_str(), "ae"));
  if (!file_) refuse(std::strerror(errno));
}

void JsonLog::write(std::string_view event, const Fields& fields) {
  if (!file_) return;
  Json json = begin(event);
  for (const auto& [name, value] : fields) json[name] = to_json(value);
  write_line(line_of(json));
}

void JsonLog::write(const Metric& metric) {
  write("metric", {{"tag", metric.tag},
                   {"value", metric.value},
                   {"unit", metric.unit},
                   {"better", std::string(name(metric.better))},
                   {"median_of", metric.median_of},
                   {"ci95_low", metric.ci95.low},
                   {"ci95_high", metric.ci95.high}});
}

void JsonLog::write(const Verdict& verdict) {
  if (!file_) return;
  Json json = begin("verdict");
  json["result"] = std::string(name(verdict.outcome()));
  json["remark"] = verdict.remark();
  json["checks"] = Json::array();
  for (const auto& check : verdict.checks())
    json["checks"].push_back({{"name", check.name},
                              {"value", check.value},
                              {"threshold", check.threshold()},
                              {"formula", check.formula},
                              {"passed", check.passed()}});
  write_line(line_of(json));
}

// A full disk must not end a training run for the sake of its log: it is said once.
void JsonLog::write_line(const std::string& line) {
  const bool written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() &&
                       std::fflush(file_.get()) == 0;
  if (written || warned_) return;
  warned_ = true;
  fmt::print(stderr, "# warning: {} cannot be written any more: {}\n", path_.string(),
             std::strerror(errno));
}

}  // namespace stowage::results
