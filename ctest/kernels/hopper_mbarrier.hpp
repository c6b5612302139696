#pragma once

#include <cstddef>

namespace stowage::kernels::test {

/// What the two tests of a phase say at one point of a barrier's life.
struct PhaseSeen {
  bool test[2];   ///< mbarrier_test_wait for parity 0, 1
  bool tried[2];  ///< mbarrier_try_wait, right after
};

/// The points, in their order.
enum PhasePoint : std::size_t {
  kFresh,        ///< before anything has arrived
  kHalf,         ///< one of two has arrived
  kFirstEnded,   ///< both
  kExpecting,    ///< both again, but 16 bytes are awaited
  kSecondEnded,  ///< the bytes are there
  kPhasePoints
};

/// Takes a barrier of two arrivals through two phases, the second with a bulk copy, on the device.
/// Synchronises; returns a CUDA error code.
int run_phases(PhaseSeen (&seen)[kPhasePoints]);

}  // namespace stowage::kernels::test
