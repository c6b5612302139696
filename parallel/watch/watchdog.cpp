#include "parallel/watch/watchdog.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "execution/printable.hpp"
#include "parallel/job/launcher.hpp"

namespace stowage::parallel {

using Clock = std::chrono::steady_clock;

namespace {

/// Between a message and the abort behind it: Open MPI 5 drops what its launcher has not read yet.
constexpr std::chrono::milliseconds kUntilRead{40};
/// Between two ranks: until the abort of the one before has come.
constexpr std::chrono::milliseconds kStagger = kUntilRead + std::chrono::milliseconds{20};
constexpr int kMostStaggers = 20;

}  // namespace

void print_error(const std::string& prefix, const std::string& what) {
  const std::string line =
      fmt::format("stowage: error: {}{}\n", prefix, execution::printable_lines(what));
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

void end_all_ranks(const std::string& what, execution::Exit exit) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::this_thread::sleep_for(kStagger * std::min(rank, kMostStaggers));
  print_error(execution::error_prefix(), what);
  // Nobody else is to be told. MPI's own end would wait for a daemon that is not there, and it is
  // that of HDF5 too, which crashes on files that it could not write.
  if (!started_by_launcher()) std::_Exit(static_cast<int>(exit));
  std::this_thread::sleep_for(kUntilRead);
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(exit));
  std::abort();
}

Watchdog::Watchdog(const ProgressWords& words, std::string group, Seconds patience, Alarm alarm,
                   Health health, std::unique_ptr<HangReport> ranks)
    : words_(words),
      group_(std::move(group)),
      patience_(patience),
      alarm_(std::move(alarm)),
      health_(std::move(health)),
      ranks_(std::move(ranks)),
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
    const Seconds waited = this->waited(Clock::now());
    const Presence mine = presence();
    if (ranks_) ranks_->answer(mine);
    std::string what = failure();
    if (what.empty() && waited < patience_) continue;
    lock.unlock();
    if (what.empty()) {
      what = fmt::format(
          "collective {} of group {} has not ended for {:.4g} s; it is number {} of this rank, {} "
          "ended",
          mine.name, group_, waited.count(), mine.begun, mine.ended);
      if (ranks_) what += "; " + ranks_->call(mine);
      if (ranks_) ranks_->let_lower_speak(mine);
    }
    alarm_(what);
    return;
  }
}

std::string Watchdog::failure() const {
  const std::string error = health_ ? health_() : std::string();
  return error.empty() ? error : fmt::format("group {}: {}", group_, error);
}

Watchdog::Seconds Watchdog::waited(Clock::time_point now) {
  const std::uint64_t ended = words_.ended;  // first: never ahead of what was begun
  const std::uint64_t begun = words_.begun;
  if (begun != begun_ || ended != ended_) {
    begun_ = begun;
    ended_ = ended;
    changed_ = now;
  }
  return begun == ended ? Seconds(0) : Seconds(now - changed_);
}

Presence Watchdog::presence() const {
  const auto index = static_cast<std::size_t>(words_.index);
  return {begun_, ended_, index < names_.size() ? names_[index] : "?"};
}

}  // namespace stowage::parallel
