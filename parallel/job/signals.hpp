#pragma once

#include <csignal>
#include <vector>

namespace stowage::parallel {

/// Notes SIGTERM, SIGINT, SIGHUP and SIGUSR1 as long as it exists: batch systems and people send
/// them to end a job. The handler only notes the signal; the run looks between steps, and all ranks
/// agree (a launcher may signal only some), by what each adds to the step's last reduction.
///
/// A signal that the process was started to ignore (nohup) stays ignored. A second SIGTERM, SIGINT
/// or SIGHUP ends the process at once; within kSameEventSeconds of the first it is the same event,
/// which reaches a rank by its terminal and by its launcher. SIGUSR1 never ends it.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  /// Puts the previous handlers back.
  ~StopSignals();

  /// Takes the signals again from libraries that set handlers of their own as they start.
  void renew() const;

  static constexpr double kSameEventSeconds = 1;

 private:
  struct Previous {
    int signal;
    struct sigaction action;
  };
  std::vector<Previous> previous_;
};

/// The number of the last stop signal since the last StopSignals was made, or 0.
int stop_signal();

}  // namespace stowage::parallel
