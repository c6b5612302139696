#pragma once

#include <string>

namespace stowage::parallel {

/// How NCCL moves data. The choices are pinned before its first communicator and never change: a
/// run is then repeatable, and what was pinned is stored with the result.
struct NcclOptions {
  std::string algorithm = "Ring";   ///< empty: NCCL's choice, for each call
  std::string protocol = "Simple";  ///< the same
  int channels = 16;                ///< thread blocks of a collective; 0: NCCL's choice
  bool copies = true;               ///< copy engines move bytes where GPUs reach each other
  double patience_s = 600;          ///< a collective that takes longer is stuck: the job is ended

  /// The same with every choice left to NCCL: what a pinned communicator is measured beside.
  NcclOptions unpinned() const {
    NcclOptions free = *this;
    free.algorithm = free.protocol = "";
    free.channels = 0;
    return free;
  }
};

}  // namespace stowage::parallel
