#include "parallel/watch/job_watch.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "parallel/job/waits.hpp"
#include "parallel/watch/watchdog.hpp"

namespace stowage::parallel {
namespace {

using Seconds = std::chrono::duration<double>;

/// A rank that swaps may need a while to answer.
constexpr Seconds kMostBetweenLooks{0.5}, kAnswerTime{10};
/// The Watchdog of a group, which knows more, has this time to speak first.
constexpr Seconds kBehindWatchdogs{1};

/// All that others need to know: whether this rank waits.
Presence presence(const LongestWait& wait) {
  return {1, wait.call.empty() ? std::uint64_t{1} : 0, "waits"};
}

/// One that came late may have been too busy to answer: what has ended is no reason to end the job.
bool lasts_still(const LongestWait& wait) { return longest_wait().lasts >= wait.lasts; }

}  // namespace

JobWatch::JobWatch(const Communicator& world) {
  if (world.size() == 1) return;
  world_ = world.duplicate();
  ranks_.emplace(*world_);
  thread_ = std::thread([this] { watch(); });
}

JobWatch::~JobWatch() {
  if (!world_) return;
  wait_for_all();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void JobWatch::wait_for_all() const {
  const Wait noted("MPI_Ibarrier");
  MPI_Request request = MPI_REQUEST_NULL;
  int done = MPI_Ibarrier(world_->handle(), &request) != MPI_SUCCESS;
  while (done == 0) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    if (done == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void JobWatch::watch() {
  Seconds asked_after{0};  // of the wait that lasts
  Seconds last{0};
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::min(wait_patience() / 4, kMostBetweenLooks),
                         [this] { return stop_; })) {
    const LongestWait wait = longest_wait();
    ranks_->answer(presence(wait));
    if (wait.lasts < last) asked_after = Seconds(0);
    last = wait.lasts;
    if (wait.lasts < asked_after + wait_patience() + kBehindWatchdogs) continue;
    asked_after = wait.lasts;
    lock.unlock();
    const std::string silent = ranks_->ask(presence(wait), kAnswerTime);
    if (!silent.empty() && lasts_still(wait)) {
      ranks_->let_lower_speak(presence(wait));
      end_job(fmt::format("waits in {} for {:.4g} s; does not answer: {}", wait.call,
                          longest_wait().lasts.count(), silent));
    }
    lock.lock();
  }
}

}  // namespace stowage::parallel
