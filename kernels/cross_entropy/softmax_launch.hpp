#pragma once

#include <cstdint>

/// The launches of the cross-entropy's kernels: on a cudaStream_t, returning the cudaError_t.
namespace stowage::kernels::cross_entropy {

/// Rows of logits (rows, V) fp32, and what becomes of them.
struct Logits {
  std::int64_t rows, vocabulary;
  float* logits;
  const std::int32_t* targets;
  float* losses;
  const float* scale;     ///< null: the losses alone, the logits stay
  float* hits = nullptr;  ///< if asked for: 1 where no logit is above the target's, else 0
};

/// The same rows, with a z-loss: see linear_cross_entropy.hpp.
template <class Rows>
struct WithZLoss : Rows {
  float z_coeff;
  float* z_losses;
};

/// losses_t, and in place of each row of logits its gradient (softmax - onehot) * scale as S,
/// float or Bf16: the gradient of row t begins where logits_t began. Rows with a negative target
/// become zero.
/// @param args Logits or WithZLoss<Logits>
template <class S, class Args = Logits>
int launch(const Args& args, void* stream);

/// Rows of the logits of columns [first, first + V) of a vocabulary that ranks share.
struct LogitsPart {
  std::int64_t rows, vocabulary, first;
  float* logits;
  const std::int32_t* targets;  ///< columns of the whole
  float* stats;                 ///< (rows, 3): maximum, sum of exp(logit - maximum), target's logit
  int ranks;                    ///< whose stats lie one behind the other
  float* losses;
  const float* scale;     ///< null: the losses alone, the logits stay
  float* hits = nullptr;  ///< as above
};

/// The stats of this part; the target's logit is 0 where another part has it.
int launch_part_stats(const LogitsPart& args, void* stream);
/// Losses and gradients, as launch() makes them, from the stats of all ranks.
/// @param args LogitsPart or WithZLoss<LogitsPart>
template <class S, class Args = LogitsPart>
int launch_part_gradient(const Args& args, void* stream);

/// sums = {sum of losses, count} over tokens with target >= 0; with `accumulate` added to.
int launch_loss_sum(std::int64_t tokens, const float* losses, const std::int32_t* targets,
                    float* sums, bool accumulate, void* stream);
/// The same of each source s: sums[s], over tokens that are `of` it.
int launch_source_losses(std::int64_t tokens, std::int64_t sources, const float* losses,
                         const std::int32_t* of, float* sums, bool accumulate, void* stream);

}  // namespace stowage::kernels::cross_entropy
