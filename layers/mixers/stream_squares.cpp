#include "layers/mixers/stream_squares.hpp"

#include "kernels/norm/mean_squares.hpp"

namespace stowage::layers {

void add_stream_squares(Recorder& recorder, Tensor rstd, double epsilon, int place) {
  const Tensor squares = recorder.program().find(kStreamSquares);
  if (!squares || recorder.batch().depth > 0) return;
  recorder.compute("stream_squares",
                   kernels::MeanSquares{recorder.rows(), recorder.storage(), epsilon},
                   {.rstd = rstd, .total = {squares, {place, place + 1}}});
}

}  // namespace stowage::layers
