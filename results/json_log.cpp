#include "results/json_log.hpp"

#include <nlohmann/json.hpp>

#include "results/format.hpp"

namespace stowage::results {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Value& value) {
  return std::visit([](const auto& held) { return Json(held); }, value);
}

// JSON has no NaN; the library writes null for it, which every reader takes as "missing".
std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json begin(std::string_view event) { return {{"event", std::string(event)}, {"time", utc_now()}}; }

}  // namespace

JsonLog::JsonLog(const std::filesystem::path& path, bool append)
    : lines_(path, FileKind::json_lines, append) {}

void JsonLog::write(std::string_view event, const Fields& fields) {
  if (!lines_.open()) return;
  Json json = begin(event);
  for (const auto& [name, value] : fields) json[name] = to_json(value);
  lines_.write(line_of(json));
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
  if (!lines_.open()) return;
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
  lines_.write(line_of(json));
}

void JsonLog::write_outcome(const Benchmark& benchmark, const std::vector<Metric>& metrics,
                            const Verdict& verdict) {
  write("benchmark", {{"driver", benchmark.driver},
                      {"uuid", benchmark.uuid},
                      {"result", benchmark.path.string()}});
  for (const Metric& metric : metrics) write(metric);
  write(verdict);
}

}  // namespace stowage::results
