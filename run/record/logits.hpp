#pragma once

#include <optional>

#include "inputs/data/run_data.hpp"
#include "results/part_file.hpp"
#include "run/step/trainer.hpp"

namespace stowage::run {

/// Collective. Evaluates the first batch of held-out data once more; rank 0 writes its microbatch
/// of it in an HDF5 file (`part`, empty elsewhere), for comparison with another program:
///
///   /            attribute schema
///   /tokens      (n) int32, /targets (n) int32, -1 where none counts, /cu_seqlens (C + 1) int32
///   /logits      (n, V), fp32 or fp64
///
/// The trainer's evaluations leave logits behind (TrainerOptions::logits). No step may be under
/// way.
/// @throws Error (exit 4) if the file cannot be written whole
void dump_logits(Trainer& trainer, const inputs::Data& data,
                 std::optional<results::PartFile>& part);

}  // namespace stowage::run
