#pragma once

#include <string>

#include "drivers/common/data.hpp"
#include "layers/trainer.hpp"
#include "parallel/mpi.hpp"

namespace stowage::drivers {

/// Collective. Evaluates the first batch of held-out data once more; rank 0 writes its microbatch
/// of it in an HDF5 file, for comparison with another program:
///
///   /            attribute schema
///   /tokens      (n) int32, /targets (n) int32, -1 where none counts, /cu_seqlens (C + 1) int32
///   /logits      (n, V), fp32 or fp64
///
/// The trainer's evaluations leave logits behind (TrainerOptions::logits). No step may be under
/// way.
/// @throws Error (exit 2) if the file is there, or cannot be written
void dump_logits(const parallel::Communicator& world, layers::Trainer& trainer, const Data& data,
                 const std::string& path);

}  // namespace stowage::drivers
