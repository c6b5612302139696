#include "execution/host/capture.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "execution/error.hpp"

namespace stowage::execution::host {
namespace {

/// The captures under way in the process; guarded by the lock.
std::vector<Capture*>& live_captures() {
  static std::vector<Capture*> instance;
  return instance;
}

}  // namespace

std::shared_ptr<Capture> make_capture(const Lock&, HostQueue& origin, std::string name) {
  auto capture = std::make_shared<Capture>();
  capture->origin = &origin;
  capture->name = std::move(name);
  capture->queues.push_back(&origin);
  live_captures().push_back(capture.get());
  return capture;
}

void forget(const Lock&, Capture& capture) {
  capture.live = false;
  std::erase(live_captures(), &capture);
}

void refuse_while_capturing(const Lock& lock, const std::string& what) {
  Capture* first = nullptr;
  for (Capture* capture : live_captures()) {
    if (capture->thread != std::this_thread::get_id()) continue;
    if (first == nullptr) first = capture;
    if (capture->failure.empty())
      capture->failure = fmt::format("capture on queue '{}': {}", capture->name, what);
  }
  if (first != nullptr) first->fail(lock, what);
}

void Capture::fail(const Lock&, const std::string& why) {
  const std::string message = fmt::format("capture on queue '{}': {}", name, why);
  if (failure.empty()) failure = message;
  throw Error(Exit::runtime, message);
}

std::string unjoined(const std::vector<Node>& nodes, const std::vector<int>& ends) {
  std::vector<bool> joined(nodes.size(), false);
  for (const int end : ends) joined[end] = true;
  // A node only follows earlier ones, so one pass from the last to the first is enough.
  for (std::size_t i = nodes.size(); i-- > 0;) {
    if (!joined[i]) return nodes[i].queue;
    for (const int before : nodes[i].after) joined[before] = true;
  }
  return {};
}

}  // namespace stowage::execution::host
