#pragma once

#include <csignal>
#include <vector>

namespace stowage::parallel {

/// Catches SIGTERM and SIGUSR1 as long as it exists: batch systems send them before they end a job.
/// The handler only notes the signal; the run looks between steps, and all ranks agree (a launcher
/// may signal only some), by what each adds to the step's last reduction.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  /// Puts the previous handlers back.
  ~StopSignals();

  /// The number of the last stop signal, or 0.
  int received() const;

 private:
  struct Previous {
    int signal;
    struct sigaction action;
  };
  std::vector<Previous> previous_;
};

}  // namespace stowage::parallel
