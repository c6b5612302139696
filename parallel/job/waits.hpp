#pragma once

#include <chrono>
#include <string>

namespace stowage::parallel {

/// A call in which this process waits for other ranks, outside of the collectives of a plan. While
/// this lives, longest_wait() knows of it, on whichever thread.
class Wait {
 public:
  /// @param call "MPI_Bcast"; outlives this
  explicit Wait(const char* call);
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  ~Wait();

  const char* call() const { return call_; }
  std::chrono::steady_clock::time_point begun() const { return begun_; }

 private:
  const char* call_;
  std::chrono::steady_clock::time_point begun_;
};

struct LongestWait {
  std::string call;                        ///< empty: nobody waits
  std::chrono::duration<double> lasts{0};  ///< up to now
};
/// Of the calls that last, the one begun first.
LongestWait longest_wait();

/// For how long such a call may last before a JobWatch asks whether the others are still there: 600
/// s, or what was set last.
std::chrono::duration<double> wait_patience();
void set_wait_patience(std::chrono::duration<double> patience);

}  // namespace stowage::parallel
