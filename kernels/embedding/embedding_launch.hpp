#pragma once

#include <cstdint>

/// The launches of the embedding's kernels: on a cudaStream_t, returning the cudaError_t. S is
/// float or Bf16.
namespace stowage::kernels::embedding {

/// Longest list of positions that one warp adds.
inline constexpr int kLongList = 16;

/// A token that occurs, and where its positions lie in a list of all.
struct NamedToken {
  std::int32_t token, start, count, unused;
};

/// Numbers that the lists of positions count.
enum Total : int { kUsed, kNamed, kLong, kTotals };

template <class S>
struct Forward {
  std::int64_t tokens, width;
  const std::int32_t* token;
  const S* table;
  S* x;
};

template <class S>
struct Backward {
  std::int64_t tokens, vocabulary, width;
  const std::int32_t* token;
  const S* dx;
  float* dtable;
  void* workspace;  ///< of embedding_backward_workspace_bytes
  bool accumulate;
};

template <class S>
int launch(const Forward<S>& args, void* stream);
template <class S>
int launch(const Backward<S>& args, void* stream);

}  // namespace stowage::kernels::embedding
