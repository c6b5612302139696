#pragma once

#include <nccl.h>

#include <source_location>
#include <string>
#include <string_view>

#include "parallel/collectives.hpp"

/// Calls NCCL on communicator `communicator` (which may be null) and throws an Error with the call,
/// NCCL's text and the place if it fails. A non-blocking call that is in progress has not failed.
#define STOWAGE_NCCL(communicator, call)                                                      \
  do {                                                                                        \
    if (const ncclResult_t stowage_nccl_code = (call);                                        \
        stowage_nccl_code != ncclSuccess && stowage_nccl_code != ncclInProgress) [[unlikely]] \
      ::stowage::parallel::throw_nccl_failed(#call, stowage_nccl_code, communicator,          \
                                             std::source_location::current());                \
  } while (false)

namespace stowage::parallel {

[[noreturn]] void throw_nccl_failed(std::string_view call, ncclResult_t code,
                                    ncclComm_t communicator, std::source_location at);

/// "2.28.9", of the library that is loaded.
std::string nccl_version();

/// Sets the variables that pin NCCL's choices; one that the user has set stays as it is. NCCL reads
/// them once: call this before its first communicator, and before the environment is recorded.
void pin_nccl(const NcclOptions& options);

/// An NCCL communicator beside MPI's: same ranks, on each rank's current GPU. Non-blocking: a call
/// that cannot go on is given up after a while instead of holding the rank for ever.
class NcclCommunicator {
 public:
  /// Collective over `ranks`.
  NcclCommunicator(const Communicator& ranks, const NcclOptions& options);
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  /// Ends the communicator at once: what was enqueued on it must be over.
  ~NcclCommunicator();

  ncclComm_t handle() const { return handle_; }
  /// Blocks until the library has done what the last call asked of it (not until the GPU has).
  void settle(std::string_view call) const;
  /// Empty, or the error that the library has noted meanwhile.
  std::string error() const;

 private:
  ncclComm_t handle_ = nullptr;
  double patience_s_;
};

}  // namespace stowage::parallel
