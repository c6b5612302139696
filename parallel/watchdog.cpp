#include "parallel/watchdog.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace stowage::parallel {

using Clock = std::chrono::steady_clock;

Watchdog::Watchdog(const ProgressWords& words, std::string group, Seconds patience, Alarm alarm,
                   Health health)
    : words_(words),
      group_(std::move(group)),
      patience_(patience),
      alarm_(std::move(alarm)),
      health_(std::move(health)),
      changed_(Clock::now()),
      thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

int Watchdog::announce(const std::string& name) {
  const std::lock_guard lock(mutex_);
  names_.push_back(name);
  return static_cast<int>(names_.size()) - 1;
}

void Watchdog::watch() {
  const auto interval = std::min(patience_ / 4, Seconds(0.2));
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, interval, [this] { return stop_; })) {
    const std::string what = look(Clock::now());
    if (what.empty()) continue;
    lock.unlock();
    alarm_(what);
    return;
  }
}

std::string Watchdog::look(Clock::time_point now) {
  const std::uint64_t ended = words_.ended;  // first: never ahead of what was begun
  const std::uint64_t begun = words_.begun;
  if (begun != begun_ || ended != ended_) {
    begun_ = begun;
    ended_ = ended;
    changed_ = now;
  }
  if (health_)
    if (std::string error = health_(); !error.empty())
      return fmt::format("group {}: {}", group_, error);
  if (begun == ended || now - changed_ < patience_) return {};
  const auto index = static_cast<std::size_t>(words_.index);
  return fmt::format(
      "collective {} of group {} has not ended for {:.4g} s; it is number {} of this rank, {} "
      "ended",
      index < names_.size() ? names_[index] : "?", group_, Seconds(now - changed_).count(), begun,
      ended);
}

}  // namespace stowage::parallel
