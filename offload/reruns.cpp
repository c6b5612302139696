#include "offload/reruns.hpp"

#include <algorithm>

#include "execution/error.hpp"
#include "offload/saved_tensors.hpp"

namespace stowage::offload {

using execution::Access;
using execution::Decision;
using execution::Lifetime;
using execution::Op;
using execution::Program;
using execution::Range;
using execution::Tensor;
using execution::Use;

struct Reruns::Search {
  int before;
  const std::vector<Decision>& decisions;
  const std::vector<char>& present;
  std::vector<int> ops;     ///< the chain so far
  std::vector<int> made;    ///< tensors that it has made
  std::vector<int> making;  ///< tensors that are asked for, to end a circle
};

namespace {

/// The innermost scope of kind "layer" around each op, or -1.
std::vector<int> layers_of_ops(const Program& program) {
  std::vector<int> result;
  for (const Op& op : program.ops()) {
    int scope = op.scope;
    while (scope >= 0 && program.scopes()[scope].kind != "layer")
      scope = program.scopes()[scope].parent;
    result.push_back(scope);
  }
  return result;
}

bool contains(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

Reruns::Reruns(const Program& program)
    : program_(program),
      layer_(layers_of_ops(program)),
      writers_(program.tensors().size()),
      rerun_makers_(program.tensors().size()),
      spans_(execution::use_spans(program, [](int, const Op& op) { return !op.only_rerun; })) {
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    const Op& op = program.ops()[i];
    for (const Use& use : op.uses) {
      const int tensor = use.tensor.id;
      if (op.only_rerun) {
        if (use.access == Access::write) rerun_makers_[tensor].push_back(static_cast<int>(i));
        continue;
      }
      if (use.access != Access::read)
        writers_[tensor].push_back({static_cast<int>(i), use.access, program.resolve(use)});
    }
  }
}

std::optional<std::vector<int>> Reruns::chain(Tensor tensor, int before,
                                              const std::vector<Decision>& decisions,
                                              const std::vector<char>& present) const {
  Search search{before, decisions, present, {}, {}, {}};
  if (!make(tensor.id, program_.resolve({tensor, Access::read}), search)) return std::nullopt;
  return search.ops;
}

int Reruns::home(int tensor) const {
  const auto& writers = writers_[tensor];
  return writers.empty() ? -1 : layer_[writers.front().op];
}

bool Reruns::make(int tensor, Range range, Search& search) const {
  if (contains(search.made, tensor)) return true;
  if (contains(search.making, tensor)) return false;
  const int layer = home(tensor);
  search.making.push_back(tensor);
  bool found = false;
  for (const int op : rerun_makers_[tensor])
    if (!found) found = try_producer(op, layer, search);
  const auto& writers = writers_[tensor];
  const std::size_t ops = search.ops.size(), made = search.made.size();
  if (!found && written_once(tensor, range))
    found = std::ranges::all_of(
        writers, [&](const Writer& writer) { return try_producer(writer.op, layer, search); });
  if (!found) {
    search.ops.resize(ops);
    search.made.resize(made);
  }
  search.making.pop_back();
  return found;
}

bool Reruns::try_producer(int op, int layer, Search& search) const {
  if (contains(search.ops, op)) return true;
  const Op& producer = program_.ops()[op];
  if (layer_[op] != layer || op >= search.before) return false;
  // A message is sent once: its peer does not compute again what this rank does.
  if (producer.communication && !producer.communication->transfers.empty()) return false;
  const std::size_t ops = search.ops.size();
  const std::size_t made = search.made.size();
  for (const Use& use : producer.uses)
    if (use.access == Access::update ||
        (use.access == Access::read && !have(use, op, layer, search))) {
      search.ops.resize(ops);
      search.made.resize(made);
      return false;
    }
  search.ops.push_back(op);
  for (const Use& use : producer.uses)
    if (use.access == Access::write) search.made.push_back(use.tensor.id);
  return true;
}

bool Reruns::have(const Use& use, int producer, int layer, Search& search) const {
  const int tensor = use.tensor.id;
  const auto at = static_cast<std::size_t>(tensor);
  if (search.decisions[at] == Decision::recompute)
    return search.present[at] || make(tensor, program_.resolve(use), search);
  if (changed_between(use, producer, search.before)) return false;
  const Lifetime lifetime = program_.tensors()[at].lifetime;
  if (lifetime != Lifetime::scratch || spans_[at].last >= search.before) return true;
  // What belongs to no layer (the documents of a microbatch) is small: it lives a little longer. So
  // does what an earlier microbatch made for all of them in this layer, such as a rounded weight.
  const int made_in = home(tensor);
  if (made_in < 0 || layer < 0) return made_in < 0;
  if (made_in == layer) return make(tensor, program_.resolve(use), search);
  const execution::Scope& there = program_.scopes()[made_in];
  const execution::Scope& here = program_.scopes()[layer];
  return there.layer == here.layer && there.microbatch != here.microbatch;
}

bool Reruns::changed_between(const Use& use, int from, int to) const {
  const execution::Range read = program_.resolve(use);
  const bool all = program_.info(use.tensor).buffers.size() > 1;  // scales are of every range
  return std::ranges::any_of(writers_[use.tensor.id], [&](const Writer& writer) {
    const bool meets = writer.range.begin < read.end && read.begin < writer.range.end;
    return writer.op > from && writer.op < to && (all || meets);
  });
}

bool Reruns::written_once(int tensor, Range range) const {
  std::vector<Writer> writers = writers_[tensor];
  if (writers.size() > 1 && program_.tensors()[tensor].buffers.size() > 1) return false;
  std::ranges::sort(writers, {}, [](const Writer& writer) { return writer.range.begin; });
  std::int64_t last = 0, written = range.begin;
  for (const Writer& writer : writers) {
    if (writer.access != Access::write || writer.range.begin < last) return false;
    last = writer.range.end;
    if (writer.range.begin <= written) written = std::max(written, last);
  }
  return written >= range.end;
}

std::vector<Run> with_reruns(const Program& program, const Reruns& reruns, int section,
                             const std::vector<Decision>& decisions,
                             const std::vector<char>& backward) {
  std::vector<char> present(program.tensors().size(), 0);
  std::vector<Run> runs;
  const execution::Section& range = program.sections()[section];
  for (int i = range.begin; i < range.end; ++i) {
    const Op& op = program.ops()[i];
    if (op.only_rerun) continue;
    for (const Use& use : op.uses) {
      const int tensor = use.tensor.id;
      if (decisions[tensor] != Decision::recompute || present[tensor] || !backward[i]) continue;
      const auto chain = reruns.chain(use.tensor, i, decisions, present);
      STOWAGE_ASSERT(chain, "{} cannot be computed again before {}", program.info(use.tensor).name,
                     op.name);
      for (const int again : *chain) {
        runs.push_back({again, true});
        for (const Use& made : program.ops()[again].uses)
          if (made.access == Access::write) present[made.tensor.id] = 1;
      }
    }
    runs.push_back({i, false});
  }
  return runs;
}

}  // namespace stowage::offload
