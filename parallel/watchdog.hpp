#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "parallel/progress.hpp"

namespace stowage::parallel {

/// Watches the collectives of one communicator from a thread of its own: a rank that died or took
/// another path leaves the others waiting inside a kernel, where no call returns an error.
class Watchdog {
 public:
  using Seconds = std::chrono::duration<double>;
  /// Told once, on the watching thread, what is wrong.
  using Alarm = std::function<void(const std::string& what)>;
  /// Asked at every look: empty, or an error that the library has noted by itself.
  using Health = std::function<std::string()>;

  /// @param words outlives this
  /// @param patience a collective that is under way for longer is stuck
  Watchdog(const ProgressWords& words, std::string group, Seconds patience, Alarm alarm,
           Health health = {});
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  /// @return the index by which ProgressWords name this collective
  int announce(const std::string& name);

 private:
  void watch();
  std::string look(std::chrono::steady_clock::time_point now);

  const volatile ProgressWords& words_;
  std::string group_;
  Seconds patience_;
  Alarm alarm_;
  Health health_;
  std::vector<std::string> names_;
  std::uint64_t begun_ = 0, ended_ = 0;            ///< at the last change
  std::chrono::steady_clock::time_point changed_;  ///< the time of that
  bool stop_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace stowage::parallel
