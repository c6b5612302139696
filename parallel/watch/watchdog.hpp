#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "execution/error.hpp"
#include "parallel/watch/hang_report.hpp"
#include "parallel/watch/progress.hpp"

namespace stowage::parallel {

/// Writes one line of an error to stderr, in one write, so that the lines of two ranks do not mix;
/// whatever becomes of it, as stderr may be closed. Control bytes but line ends are escaped.
void print_error(const std::string& prefix, const std::string& what);

/// Ends all ranks with one message and this exit code, from any thread: the others may be inside of
/// calls that never return. The lower rank speaks first, so that its abort ends those that would
/// repeat the message.
[[noreturn]] void end_all_ranks(const std::string& what, execution::Exit exit);

/// The same for what a thread that watches has seen.
[[noreturn]] inline void end_job(const std::string& what) {
  end_all_ranks(what, execution::Exit::runtime);
}

/// Watches the collectives of one group from a thread of its own: a rank that died or took another
/// path leaves the others waiting, where no call returns an error.
class Watchdog {
 public:
  using Seconds = std::chrono::duration<double>;
  /// Told once, on the watching thread, what is wrong.
  using Alarm = std::function<void(const std::string& what)>;
  /// Asked at every look: empty, or an error that the library has noted by itself.
  using Health = std::function<std::string()>;

  /// @param words outlives this
  /// @param patience a collective that is under way for longer is stuck
  /// @param ranks if given, tells which ranks have not come; of the ranks that wait, the lowest one
  /// raises the alarm first
  Watchdog(const ProgressWords& words, std::string group, Seconds patience, Alarm alarm,
           Health health = {}, std::unique_ptr<HangReport> ranks = {});
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  /// @return the index by which ProgressWords name this collective
  int announce(const std::string& name);

 private:
  void watch();
  /// What the library says is wrong, or nothing.
  std::string failure() const;
  /// For how long the collective under way has been; 0 if none is.
  Seconds waited(std::chrono::steady_clock::time_point now);
  Presence presence() const;

  const volatile ProgressWords& words_;
  std::string group_;
  Seconds patience_;
  Alarm alarm_;
  Health health_;
  std::unique_ptr<HangReport> ranks_;
  std::vector<std::string> names_;
  std::uint64_t begun_ = 0, ended_ = 0;            ///< at the last change
  std::chrono::steady_clock::time_point changed_;  ///< the time of that
  bool stop_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace stowage::parallel
