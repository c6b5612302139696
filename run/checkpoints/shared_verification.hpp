#pragma once

#include <filesystem>
#include <string>

#include "parallel/job/mpi.hpp"

namespace stowage::run {

/// Checkpoints that all ranks verify together: each reads an equal share of the bytes of all
/// tensors, and the digests of the shares add up. While it exists on rank 0, which says what is to
/// be verified, the others stay in its constructor.
class SharedVerification {
 public:
  /// Collective. @param world outlives this
  explicit SharedVerification(const parallel::Communicator& world);
  SharedVerification(const SharedVerification&) = delete;
  SharedVerification& operator=(const SharedVerification&) = delete;
  ~SharedVerification();

  /// On rank 0. @throws Error (exit 2) that names the file and what of it is damaged, or which rank
  /// cannot read it
  void verify(const std::filesystem::path& path) const;

 private:
  const parallel::Communicator& world_;
  int threads_;  ///< of this rank
};

}  // namespace stowage::run
