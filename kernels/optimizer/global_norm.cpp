#include "kernels/optimizer/global_norm.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/optimizer/global_norm_launch.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

// A piece with its address and the slot of its first block.
struct Located {
  template <class T>
  NormPointers<T> as() const {
    return {gradient.as<const T>(), elements, slot, out_begin, out_end};
  }

  Address gradient;
  std::int64_t elements, slot, out_begin, out_end;
};

Located locate(const Operands& operands, const NormPiece& piece, Dtype dtype, std::int64_t slots) {
  operands.require(operands.storage(piece.gradient, "gradient") == dtype,
                   "the gradients have several dtypes");
  operands.require(dtype == execution::accumulation(dtype),
                   "the gradients have not an accumulation dtype");
  const std::int64_t held = piece.gradient.buffer().elements();
  operands.require(
      piece.elements >= 0 && piece.elements <= held,
      fmt::format("a piece has {} elements, its gradient holds {}", piece.elements, held));
  operands.require(
      piece.first >= 0 && piece.first % kNormBlock == 0,
      fmt::format("a piece begins at element {}, not at a block of {}", piece.first, kNormBlock));
  const std::int64_t slot = piece.slot + piece.first / kNormBlock;
  operands.require(piece.slot >= 0 && slot + norm_blocks(piece.elements) <= slots,
                   fmt::format("slots {} to {} of a piece are not among the {} partials", slot,
                               slot + norm_blocks(piece.elements) - 1, slots));
  operands.require(piece.left_out.begin >= 0 && piece.left_out.begin <= piece.left_out.end,
                   fmt::format("elements {} to {} of a piece are left out", piece.left_out.begin,
                               piece.left_out.end));
  const auto in_piece = [&](std::int64_t element) {
    return std::clamp<std::int64_t>(element - piece.first, 0, piece.elements);
  };
  return {Address(piece.gradient), piece.elements, slot, in_piece(piece.left_out.begin),
          in_piece(piece.left_out.end)};
}

}  // namespace

void norm_partials(Queue& queue, std::span<const NormPiece> pieces, const View& partials) {
  if (pieces.empty()) return;
  const Operands operands("norm_partials");
  operands.rank(partials, "partials", 1);
  const std::int64_t slots = partials.extent(0);
  operands.check(partials, "partials", Dtype::fp64, {slots});
  const Dtype dtype = operands.storage(pieces[0].gradient, "gradient");
  std::vector<Located> located;
  for (const NormPiece& piece : pieces) located.push_back(locate(operands, piece, dtype, slots));
  run(
      queue, "norm_partials", dtype,
      [located, partials = Address(partials)]<class S>() {
        for (const Located& piece : located)
          norm_partials_ref(piece.as<Accumulation<S>>(), partials.as<double>());
      },
      [&]<class S>(void* stream) {
        std::vector<NormPointers<float>> pointers;
        for (const Located& piece : located) pointers.push_back(piece.as<float>());
        return optimizer::launch_norm_partials(pointers, partials.as<double>(), stream);
      });
}

void norm_finish(Queue& queue, const View& partials, const View& norm, const View& step_ok) {
  const Operands operands("norm_finish");
  operands.rank(partials, "partials", 1);
  const std::int64_t slots = partials.extent(0);
  operands.check(partials, "partials", Dtype::fp64, {slots});
  const Dtype dtype = operands.storage(norm, "norm");
  operands.check(norm, "norm", execution::accumulation(dtype), {1});
  operands.check(step_ok, "step_ok", Dtype::int32, {1});
  const auto all = [slots](const Address& address) {
    return std::span(address.as<const double>(), static_cast<std::size_t>(slots));
  };
  run(
      queue, "norm_finish", dtype,
      [=, partials = Address(partials), norm = Address(norm),
       step_ok = Address(step_ok)]<class S>() {
        norm_finish_ref(all(partials), norm.as<Accumulation<S>>(), step_ok.as<std::int32_t>());
      },
      [&]<class S>(void* stream) {
        return optimizer::launch_norm_finish(all(Address(partials)), norm.as<float>(),
                                             step_ok.as<std::int32_t>(), stream);
      });
}

Cost norm_partials_cost(std::int64_t elements, Dtype dtype) {
  return {2.0 * static_cast<double>(elements), bytes(elements, dtype)};
}

Cost norm_finish_cost(std::int64_t slots) {
  return {static_cast<double>(slots), bytes(slots, Dtype::fp64)};
}

}  // namespace stowage::kernels
