#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "parallel/job/mpi.hpp"
#include "parallel/watch/hang_report.hpp"

namespace stowage::parallel {

/// Watches the calls of a Communicator, from a thread of its own: a rank that is stopped, or whose
/// host is gone, would keep the others in them for ever. A rank that is merely busy answers, so it
/// may take as long as it likes: some read or write a file for all. If one does not, the job ends
/// with its name. (The collectives of plans have a Watchdog for each group, with a bound.)
class JobWatch {
 public:
  /// Collective. One rank alone is not watched.
  explicit JobWatch(const Communicator& world);
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;
  /// Waits for the others: a rank that has ended its work answers as long as one has not.
  ~JobWatch();

 private:
  void watch();
  void wait_for_all() const;

  std::optional<Communicator> world_;
  std::optional<HangReport> ranks_;
  bool stop_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace stowage::parallel
