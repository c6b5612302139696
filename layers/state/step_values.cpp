#include "layers/state/step_values.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "layers/mixers/router.hpp"

namespace stowage::layers {

StepValues::StepValues(Recorder& recorder, int layers, const std::vector<Tensor>& head,
                       const parallel::SumTree& tree)
    : layers_(layers), tree_(tree) {
  std::int64_t at = 2 * layers_;
  for (const Tensor tensor : head) {
    const std::int64_t end = at + recorder.buffer(tensor).elements();
    head_.push_back({tensor, {at, end}});
    at = end;
  }
  recorder.set_prefix("values");
  Program& program = recorder.program();
  const auto make = [&](const std::string& name) {
    const Tensor made = program.scratch(name, recorder.accumulation(), {elements()});
    recorder.clear("clear/" + name, write(made));
    return made;
  };
  values_ = make(kLayerLosses);
  for (int node = 0; node < tree.most_kept(); ++node)
    kept_.push_back(make(fmt::format("{}/{}", kLayerLosses, node)));
}

SomeRows StepValues::place(Tensor of_head) const {
  return {values_, std::ranges::find(head_, of_head, &OfHead::tensor)->rows};
}

void StepValues::add_head(Program& program, const parallel::Leaf& microbatch) {
  add(program, layers_, {head_.front().rows.begin, elements()}, microbatch);
}

void StepValues::add_layers(Program& program, int begin, int end,
                            const parallel::Leaf& microbatch) {
  if (layers_ > 0) add(program, begin, rows(begin, end), microbatch);
}

void StepValues::add(Program& program, std::int64_t first_layer, execution::Range rows,
                     const parallel::Leaf& microbatch) {
  if (kept_.empty()) return;
  program.append(parallel::add_leaf(program,
                                    fmt::format("values/{}/{}", microbatch.text(), first_layer),
                                    values_, kept_, {rows}, microbatch, tree_));
}

Tensor StepValues::nodes(Recorder& recorder) {
  if (tree_.ranks == 1) return nodes_ = values_;
  recorder.set_prefix("values");
  nodes_ = recorder.program().scratch("values/nodes", recorder.accumulation(),
                                      {tree_.all_nodes() * elements()});
  recorder.clear("no_nodes", write(nodes_));
  const int own = tree_.nodes(tree_.rank);
  for (int node = 0; node < own; ++node) {
    const std::int64_t first = (tree_.first_node() + node) * elements();
    const Tensor from = node + 1 < own ? kept_[static_cast<std::size_t>(node)] : values_;
    recorder.copy(fmt::format("node/{}", node), read(from),
                  {nodes_, Access::write, {first, first + elements()}});
  }
  return nodes_;
}

void StepValues::finish(Recorder& recorder, Tensor router_losses) const {
  recorder.set_prefix("values");
  Program& program = recorder.program();
  if (tree_.ranks > 1)
    program.append(parallel::add_nodes(program, "values/add_nodes", nodes_, values_, tree_));
  for (const OfHead& one : head_)
    recorder.copy(program.info(one.tensor).name, {values_, Access::read, one.rows},
                  write(one.tensor));
  if (router_losses)
    program.append(parallel::add_rows(program, "values/add_layers", {values_, rows(0, layers_)},
                                      router_losses));
}

}  // namespace stowage::layers
