#include "layers/step/update_norms.hpp"

#include "execution/error.hpp"
#include "kernels/cost.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/keep_weights.hpp"

namespace stowage::layers {

using execution::Dtype;
using execution::Range;

namespace {

SomeRows weight_of(const ParameterUpdate& window, const ParameterUpdate::One& one) {
  return window.has_master ? one.master : one.parameter;
}

}  // namespace

UpdateNorms::UpdateNorms(Recorder& recorder, Tensor asked, Tensor sums, std::int64_t blocks)
    : recorder_(recorder), asked_(asked), sums_(sums), blocks_(blocks) {
  recorder_.clear("clear_changes", {sums_, Access::write, {0, blocks_}},
                  kernels::fill_cost(blocks_, Dtype::fp64));
}

void UpdateNorms::add(const std::string& name, std::int64_t elements, std::int64_t first_block,
                      Range left_out) {
  pieces_[name] = {first_block, left_out};
  left_ += elements;
}

template <class Body>
std::int64_t UpdateNorms::for_each(const ParameterUpdate& window, Body&& body) const {
  std::int64_t at = 0;
  for (const ParameterUpdate::One& one : window.parameters) {
    const auto piece = pieces_.find(one.name);
    if (piece == pieces_.end()) continue;  // another rank answers for it
    body(one, piece->second, Range{at, at + one.elements});
    at += kernels::kNormBlock * kernels::norm_blocks(one.elements);
  }
  return at;
}

std::int64_t UpdateNorms::window_elements(const OptimizerConfig& config) const {
  constexpr std::int64_t kWindows = 4;  // 256 MiB of masters by default: few ops, little memory
  return kWindows * config.window_elements;
}

void UpdateNorms::keep(const ParameterUpdate& window) {
  kernels::KeepWeights op{
      .elements = {}, .storage = recorder_.storage(), .has_master = window.has_master};
  kernels::KeepWeights::Operands<Tensor> operands{.asked = asked_, .tensors = {}};
  const std::int64_t all = for_each(window, [](const auto&, const Piece&, Range) {});
  if (all == 0) return;
  kept_ =
      recorder_.scratch(window.name + "/kept",
                        window.has_master ? recorder_.accumulation() : recorder_.storage(), {all});
  for_each(window, [&](const ParameterUpdate::One& one, const Piece&, Range where) {
    op.elements.push_back(one.elements);
    operands.tensors.push_back({.weight = weight_of(window, one), .kept = {kept_, where}});
  });
  recorder_.compute(window.name + "/keep", op, operands);
}

void UpdateNorms::square(const ParameterUpdate& window) {
  kernels::ChangePartials op{.pieces = {},
                             .slots = blocks_,
                             .storage = recorder_.storage(),
                             .has_master = window.has_master};
  kernels::ChangePartials::Operands<Tensor> operands{
      .asked = asked_, .partials = {sums_, {0, blocks_}}, .tensors = {}};
  for_each(window, [&](const ParameterUpdate::One& one, const Piece& piece, Range where) {
    op.pieces.push_back({.first = one.index.first,
                         .elements = one.elements,
                         .slot = piece.first_block,
                         .left_out = piece.left_out});
    operands.tensors.push_back({.weight = weight_of(window, one), .before = {kept_, where}});
    left_ -= one.elements;
  });
  if (!op.pieces.empty()) recorder_.compute(window.name + "/changes", op, operands);
}

void UpdateNorms::finish(std::span<const Range> parts) const {
  STOWAGE_ASSERT(left_ == 0, "what {} elements change by is in no norm", left_);
  const Tensor squares = recorder_.program().output(kUpdateSquares, Dtype::fp64,
                                                    {static_cast<std::int64_t>(parts.size())});
  recorder_.compute(
      "update_squares",
      kernels::PartSums{
          .parts = {parts.begin(), parts.end()}, .slots = blocks_, .storage = recorder_.storage()},
      {.partials = {sums_, {0, blocks_}}, .sums = squares});
}

}  // namespace stowage::layers
