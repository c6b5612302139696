#include "kernels/optimizer/global_norm.hpp"

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

/// A piece that has elements, as addresses.
struct Bound {
  Address gradient;
  std::int64_t elements;
  double* partials;  ///< of its first block

  template <class T>
  NormPointers<T> as() const {
    return {gradient.as<const T>(), elements, partials};
  }
};

std::vector<Bound> bind(std::span<const NormPiece> pieces, const View& partials) {
  std::vector<Bound> all;
  for (const NormPiece& piece : pieces)
    if (const std::int64_t elements = piece.gradient.buffer().elements(); elements > 0)
      all.push_back({Address(piece.gradient), elements,
                     partials.as<double>() + piece.first_block + piece.first / kNormBlock});
  return all;
}

}  // namespace

void norm_partials(Queue& queue, std::span<const NormPiece> pieces, const View& partials) {
  if (pieces.empty()) return;
  const Operands operands("norm_partials");
  const Dtype dtype = operands.storage(pieces.front().gradient, "gradient");
  operands.require(partials.dtype() == Dtype::fp64, "partials are fp64");
  operands.require(dtype == execution::accumulation(dtype), "gradients are fp32 or fp64");
  for (const NormPiece& piece : pieces) {
    operands.require(operands.storage(piece.gradient, "gradient") == dtype,
                     "the gradients have several dtypes");
    operands.require(piece.first % kNormBlock == 0, "a piece starts within a block");
    operands.require(piece.first_block + piece.first / kNormBlock +
                             norm_blocks(piece.gradient.buffer().elements()) <=
                         partials.buffer().elements(),
                     "partials have no room for a piece");
  }
  run(
      queue, "norm_partials", dtype,
      [all = bind(pieces, partials)]<class S>() {
        for (const Bound& piece : all) norm_partials_ref(piece.as<Accumulation<S>>());
      },
      [&]<class S>(void* stream) {
        std::vector<NormPointers<float>> all;
        for (const Bound& piece : bind(pieces, partials)) all.push_back(piece.as<float>());
        return optimizer::launch_norm_partials(all, stream);
      });
}

void norm_finish(Queue& queue, const View& partials, const View& norm, const View& step_ok,
                 const View& workspace) {
  const Operands operands("norm_finish");
  const Dtype dtype = operands.storage(norm, "norm");
  operands.check(norm, "norm", execution::accumulation(dtype), {1});
  operands.check(step_ok, "step_ok", Dtype::int32, {1});
  operands.require(partials.dtype() == Dtype::fp64, "partials are fp64");
  const std::int64_t blocks = partials.buffer().elements();
  operands.workspace(workspace, norm_finish_workspace_bytes(blocks));
  run(
      queue, "norm_finish", dtype,
      [=, partials = Address(partials), norm = Address(norm), step_ok = Address(step_ok),
       chunks = Address(workspace)]<class S>() {
        using A = Accumulation<S>;
        norm_finish_ref<A>(partials.as<const double>(), blocks, norm.as<A>(),
                           step_ok.as<std::int32_t>(), chunks.as<double>());
      },
      [&]<class S>(void* stream) {
        return optimizer::launch_norm_finish(Address(partials).as<const double>(), blocks,
                                             norm.as<float>(), step_ok.as<std::int32_t>(),
                                             Address(workspace).as<double>(), stream);
      });
}

std::size_t norm_finish_workspace_bytes(std::int64_t blocks) {
  return static_cast<std::size_t>(norm_chunks(blocks)) * sizeof(double);
}

Cost norm_partials_cost(std::int64_t elements, Dtype dtype) {
  return {2.0 * static_cast<double>(elements), bytes(elements, dtype)};
}

Cost norm_finish_cost(std::int64_t blocks) {
  return {static_cast<double>(blocks), bytes(blocks, Dtype::fp64)};
}

}  // namespace stowage::kernels
