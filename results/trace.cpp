#include "results/trace.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "execution/error.hpp"

namespace stowage::results {

void Trace::write(PartFile& part, std::string_view option) const {
  using nlohmann::json;
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
