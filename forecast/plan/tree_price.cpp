#include "forecast/plan/tree_price.hpp"

#include <fmt/core.h>

#include "layers/state/gradient_tree.hpp"
#include "results/format.hpp"

namespace stowage::forecast {

std::string TreePrice::text(bool timed) const {
  std::string text = fmt::format(
      "tree of {} lea{}, {} microbatch{} each: {} of partial gradients, {} more "
      "through memory",
      leaves, leaves == 1 ? "f" : "ves", leaf_microbatches, leaf_microbatches == 1 ? "" : "es",
      results::quantity(kept_bytes, "B"), results::quantity(moved_bytes, "B"));
  if (timed) text += fmt::format(" in {:.3f} ms", 1e3 * adding_s);
  if (wire_bytes > 0)
    text += fmt::format(", {} to other ranks: {} partial sum{} of each gradient",
                        results::quantity(wire_bytes, "B"), nodes, nodes == 1 ? "" : "s");
  return text;
}

std::optional<TreePrice> tree_price(const TrainerPlan& run) {
  if (!run.options().sharing.same_on_ranks) return std::nullopt;
  const execution::Program& program = run.training().back()->recorded.program;
  const layers::Sharing& sharing = run.options().sharing;
  const parallel::SumTree tree = sharing.gradient_tree(run.options().step.microbatches);
  TreePrice price{.nodes = tree.most_nodes(),
                  .leaves = tree.leaves(),
                  .leaf_microbatches = sharing.leaf_microbatches};
  for (const execution::TensorInfo& info : program.tensors())
    if (layers::is_of_tree(info.name)) price.kept_bytes += static_cast<double>(info.bytes());
  for (const execution::Section& section : program.sections())
    for (int i = section.begin; i < section.end; ++i) {
      const execution::Op& op = program.ops()[i];
      if (layers::is_of_tree(op.name)) {
        price.moved_bytes += section.repeat * op.cost.bytes;
        price.adding_s += section.repeat * run.options().planner.rates.time_s(program, i);
      }
      if (op.communication && op.communication->detail == tree.text())
        price.wire_bytes += section.repeat * op.cost.bytes;
    }
  return price;
}

}  // namespace stowage::forecast
