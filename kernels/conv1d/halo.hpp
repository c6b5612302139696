#pragma once

#include "kernels/conv1d/conv1d.hpp"

/// What ranks that share a sequence exchange for the convolution: the last three tokens of a
/// segment are the halo of the next one.
namespace stowage::kernels {

/// rows (3, C) = x of the last three of a segment's tokens, zero where their document ends before
/// the next segment begins.
struct Conv1dHaloRows {
  static constexpr std::string_view kName = "conv1d_halo_rows";
  std::int64_t tokens, channels;  ///< of x; at least three tokens
  std::int64_t sequence_tokens;   ///< of all segments
  std::int64_t border;            ///< the token of the sequence that the next segment begins with
  execution::Dtype storage;

  template <class T>
  struct Operands {
    InColumns<T> x;
    Of<T, const std::int32_t> seq_idx;  ///< the document of each token of the sequence
    Out<T> rows;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {tokens, channels}), o.x...);
    f(in("seq_idx", execution::Dtype::int32, {sequence_tokens}), o.seq_idx...);
    f(out("rows", storage, {kConv1dHalo, channels}), o.rows...);
  }
  std::string fault() const;
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

/// Adds the gradient of those rows, which the next segment found, to that of x.
struct Conv1dHaloAdd {
  static constexpr std::string_view kName = "conv1d_halo_add";
  std::int64_t tokens, channels, sequence_tokens, border;  ///< as of Conv1dHaloRows
  execution::Dtype storage;

  template <class T>
  struct Operands {
    In<T> gradient;
    Of<T, const std::int32_t> seq_idx;
    OutColumns<T> dx;
  };
  void each(auto&& f, auto&... o) const {
    f(in("gradient", storage, {kConv1dHalo, channels}), o.gradient...);
    f(in("seq_idx", execution::Dtype::int32, {sequence_tokens}), o.seq_idx...);
    f(sum("dx", true, storage, {tokens, channels}), o.dx...);
  }
  std::string fault() const;
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

}  // namespace stowage::kernels
