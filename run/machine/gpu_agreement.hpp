#pragma once

#include <span>
#include <string>

namespace stowage::run {

/// What one rank found when it looked for its GPU.
struct GpuFinding {
  std::string host;
  bool opened = false;  ///< there is a GPU, with a driver that serves this program
  std::string problem;  ///< why it has none of its own; empty: it has
};

/// What all ranks do. At most one of the texts is there.
struct GpuAgreement {
  bool on_gpus = false;
  std::string refusal;  ///< exit 3
  std::string warning;  ///< the run goes on without GPUs
};

/// All ranks compute on GPUs, or none: a job that is half of each would be as slow as its hosts,
/// and one that left its GPUs alone without a word would waste them.
///
/// @param by_rank of all ranks of the job  @param required execution.backend = "cuda"
/// @return a refusal names a rank with a GPU and one without, or the first rank that has none where
/// GPUs are required; a warning tells what the first rank lacks
GpuAgreement agree_on_gpus(std::span<const GpuFinding> by_rank, bool required);

/// A finding as text and back, so that ranks can tell each other.
std::string to_text(const GpuFinding& finding);
GpuFinding finding_from_text(const std::string& text);

}  // namespace stowage::run
