#pragma once

#include <nccl.h>

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>

#include "execution/backend.hpp"
#include "parallel/groups/transport.hpp"
#include "parallel/job/mpi.hpp"
#include "parallel/transport/nccl_options.hpp"

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

/// Sets the variables that pin NCCL's choices, or takes back what was set here where the choice is
/// NCCL's; one that the user has set stays as it is. NCCL reads algorithm and protocol when a
/// communicator is made, and what graphs do once: call this before the first, and before the
/// environment is recorded.
void pin_nccl(const NcclOptions& options);

/// An NCCL communicator beside MPI's: same ranks, on each rank's current GPU. Non-blocking: a call
/// that cannot go on is given up after a while instead of holding the rank for ever.
class NcclCommunicator {
 public:
  /// Collective over `ranks`. Pins what it is made with, until the next one is made.
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

/// The transport of the cuda backend, on the current GPU of this thread. Collective over `ranks`;
/// meets every peer once. Its calls can be captured.
/// @param device_bytes if given, the device memory that the library took for it is added
/// @throws Error for a failed call, or after `patience_s`
std::shared_ptr<Transport> make_nccl_transport(execution::Backend& backend,
                                               const Communicator& ranks, std::string group,
                                               const NcclOptions& options,
                                               std::int64_t* device_bytes = nullptr);

}  // namespace stowage::parallel
