#include "results/trace.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "execution/error.hpp"

namespace stowage::results {

using nlohmann::json;

void Trace::add(const std::string& text) {
  const json all = json::parse(text);
  for (const json& queue : all.at("queues"))
    name_queue(queue.at(0), queue.at(1), queue.at(2).get<std::string>());
  for (const json& bar : all.at("bars"))
    add({bar.at(0), bar.at(1), bar.at(2).get<std::string>(), bar.at(3), bar.at(4)});
}

std::string Trace::text() const {
  json queues = json::array(), bars = json::array();
  for (const QueueName& queue : queues_) queues.push_back({queue.rank, queue.queue, queue.name});
  for (const Bar& bar : bars_)
    bars.push_back({bar.rank, bar.queue, bar.name, bar.begin_s, bar.time_s});
  return json{{"queues", std::move(queues)}, {"bars", std::move(bars)}}.dump();
}

void Trace::start_at_zero() {
  double start_s = std::numeric_limits<double>::infinity();
  for (const Bar& bar : bars_) start_s = std::min(start_s, bar.begin_s);
  for (Bar& bar : bars_) bar.begin_s -= start_s;
}

void Trace::write(PartFile& part, std::string_view option) const {
  json events = json::array();
  for (const QueueName& queue : queues_)
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", queue.rank},
                      {"tid", queue.queue},
                      {"args", {{"name", queue.name}}}});
  for (const Bar& bar : bars_)
    events.push_back({{"ph", "X"},
                      {"name", bar.name},
                      {"pid", bar.rank},
                      {"tid", bar.queue},
                      {"ts", 1e6 * bar.begin_s},
                      {"dur", 1e6 * bar.time_s}});
  std::ofstream file(part.part());
  file << json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump() << "\n";
  file.close();
  if (!file)
    throw execution::Error(execution::Exit::runtime,
                           fmt::format("{} {}: cannot be written: {}", option,
                                       part.final_path().string(), std::strerror(errno)));
  part.commit();
}

}  // namespace stowage::results
