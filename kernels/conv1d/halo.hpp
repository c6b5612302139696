#pragma once

#include <cstdint>

#include "execution/op.hpp"
#include "kernels/matrix.hpp"

/// What ranks that share a sequence exchange for the convolution: the last three tokens of a
/// segment are the Conv1dHalo of the next one.
namespace stowage::kernels {

/// rows (3, C) = x of the last three of a segment's tokens, zero where their document ends before
/// the next segment begins. x: C columns of (m, *), m >= 3; seq_idx (n) int32: the document of every
/// token of the sequence; border: the one that the next segment begins with, 3 <= border < n.
void conv1d_halo_rows(execution::Queue& queue, const Columns& x, const execution::View& seq_idx,
                      std::int64_t border, const execution::View& rows);

/// Adds the gradient of those rows, which the next segment found, to that of x.
void conv1d_halo_add(execution::Queue& queue, const execution::View& gradient,
                     const execution::View& seq_idx, std::int64_t border, const Columns& dx);

/// Of either.
execution::Cost conv1d_halo_cost(std::int64_t channels, execution::Dtype storage);

}  // namespace stowage::kernels
