#pragma once

#include <cstdint>

#include "execution/dtype.hpp"
#include "kernels/matrix.hpp"

/// Host references of sharded_cross_entropy.hpp.
namespace stowage::kernels {

template <class S>
void sharded_logits_ref(Matrix<const S> h, Matrix<const S> w, const std::int32_t* targets,
                        std::int64_t first, Matrix<execution::Accumulation<S>> logits,
                        execution::Accumulation<S>* stats);

/// Logits become their gradients if there is a scale; losses of rows.
template <class A>
void lose_parts_ref(Matrix<A> logits, const std::int32_t* targets, std::int64_t first,
                    const A* stats, int ranks, const A* scale, A* losses, A* hits);

template <class S>
void sharded_gradients_ref(Matrix<const execution::Accumulation<S>> dlogits, Matrix<const S> h,
                           Matrix<const S> w, Matrix<S> dh, Matrix<execution::Accumulation<S>> dw,
                           bool accumulate);

}  // namespace stowage::kernels
