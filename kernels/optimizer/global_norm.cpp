#include "kernels/optimizer/global_norm.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/optimizer/global_norm_launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;

namespace {

std::string fault_of(const std::vector<NormPartials::Piece>& pieces, std::int64_t slots) {
  for (const NormPartials::Piece& piece : pieces) {
    if (piece.elements < 0) return "a piece without its number of elements";
    if (piece.first < 0 || piece.first % kNormBlock != 0)
      return fmt::format("a piece begins at element {}, not at a block of {}", piece.first,
                         kNormBlock);
    const std::int64_t slot = piece.slot + piece.first / kNormBlock;
    const std::int64_t end = slot + norm_blocks(piece.elements);
    if (piece.slot < 0 || end > slots)
      return fmt::format("slots {} to {} of a piece are not among the {} partials", slot, end - 1,
                         slots);
    if (piece.left_out.begin < 0 || piece.left_out.begin > piece.left_out.end)
      return fmt::format("elements {} to {} of a piece are left out", piece.left_out.begin,
                         piece.left_out.end);
  }
  return {};
}

double elements_of(const std::vector<NormPartials::Piece>& pieces) {
  std::int64_t elements = 0;
  for (const NormPartials::Piece& piece : pieces) elements += piece.elements;
  return static_cast<double>(elements);
}

}  // namespace

std::string NormPartials::fault() const {
  if (gradient_type != Dtype::bf16 && gradient_type != execution::accumulation(storage))
    return fmt::format("gradients of {}", execution::name(gradient_type));
  return fault_of(pieces, slots);
}

template <class S>
int NormPartials::launch(const Operands<Pointers<S>>& o, void* stream) const {
  if (gradient_type == Dtype::bf16)
    return optimizer::launch_norm_partials<execution::Bf16>(
        norm_pointers<execution::Bf16, S>(*this, o), o.partials, stream);
  return optimizer::launch_norm_partials<float>(norm_pointers<float, S>(*this, o), o.partials,
                                                stream);
}

Cost NormPartials::cost() const {
  const double elements = elements_of(pieces);
  return {2.0 * elements, elements * static_cast<double>(execution::size_bytes(gradient_type))};
}

std::string ChangePartials::fault() const { return fault_of(pieces, slots); }

template <class S>
int ChangePartials::launch(const Operands<Pointers<S>>& o, void* stream) const {
  const auto with = [&]<class W>(W) {
    return optimizer::launch_change_partials<W>(norm_pointers<W, S>(*this, o), o.asked, o.partials,
                                                stream);
  };
  return has_master ? with(float()) : with(S());
}

// Of a step that is not asked: of few that are, a prediction says nothing.
Cost ChangePartials::cost() const { return {}; }

template <class S>
int NormFinish::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return optimizer::launch_norm_finish({o.partials, static_cast<std::size_t>(slots)}, o.norm,
                                       o.step_ok, stream);
}

Cost NormFinish::cost() const { return {static_cast<double>(slots), bytes(slots, Dtype::fp64)}; }

std::string PartSums::fault() const {
  for (const execution::Range& part : parts)
    if (part.begin < 0 || part.begin > part.end || part.end > slots)
      return fmt::format("slots {} to {} of a part are not among the {} partials", part.begin,
                         part.end - 1, slots);
  return {};
}

template <class S>
int PartSums::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return optimizer::launch_part_sums(parts, o.partials, o.sums, stream);
}

Cost PartSums::cost() const { return {static_cast<double>(slots), bytes(slots, Dtype::fp64)}; }

STOWAGE_OPERATOR_RUN(NormPartials)
STOWAGE_OPERATOR_RUN(ChangePartials)
STOWAGE_OPERATOR_RUN(NormFinish)
STOWAGE_OPERATOR_RUN(PartSums)

}  // namespace stowage::kernels
