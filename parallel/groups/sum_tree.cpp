#include "parallel/groups/sum_tree.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "execution/error.hpp"

namespace stowage::parallel {

using execution::Access;
using execution::Dtype;
using execution::Op;
using execution::Program;
using execution::Queue;
using execution::Range;
using execution::Tensor;
using execution::UseIndex;
using execution::Views;

int SumTree::nodes(int r) const { return ranks == 1 ? 1 : nodes_of(begin(r), begin(r + 1)); }

int SumTree::most_nodes() const {
  int most = 0;
  for (int r = 0; r < ranks; ++r) most = std::max(most, nodes(r));
  return most;
}

int SumTree::all_nodes() const {
  int all = 0;
  for (int r = 0; r < ranks; ++r) all += nodes(r);
  return all;
}

int SumTree::first_node() const {
  int before = 0;
  for (int r = 0; r < rank; ++r) before += nodes(r);
  return before;
}

int SumTree::most_kept() const {
  int most = 0;
  for (int r = 0; r < ranks; ++r)
    for (std::int64_t end = begin(r) + 1; end < begin(r + 1); ++end)
      most = std::max(most, nodes_of(begin(r), end));
  STOWAGE_ASSERT(most < kMostTreeNodes, "a tree of {} leaves on {} ranks keeps {} sums", leaves(),
                 ranks, most);
  return most;
}

std::string SumTree::text() const { return fmt::format("sum, tree of {}", leaves()); }

std::string Leaf::text() const { return index ? "each" : std::to_string(number); }

namespace {

const execution::BufferInfo& buffer(const Program& program, Tensor tensor) {
  return program.info(tensor).buffers.front();
}

execution::Cost reading_and_writing(double elements, double operands, Dtype dtype) {
  return {elements, operands * elements * static_cast<double>(size_bytes(dtype))};
}

/// An op on a range: its elements and operands.
struct Part {
  std::int64_t count;
  std::vector<UseIndex> kept;  ///< of the named nodes
  UseIndex leaf;
};

/// Which kept nodes an op names, and what for.
struct NamedNodes {
  int begin, end;
  Access access;
};

/// Nodes that a leaf of this rank between the first and the last meets, on average.
double met_between(const SumTree& tree) {
  int met = 0;
  for (std::int64_t leaf = 1; leaf + 1 < tree.each; ++leaf) {
    const detail::Merge merge = tree.merge(leaf, false);
    met += merge.before - merge.after + 1;
  }
  return static_cast<double>(met) / static_cast<double>(std::max<std::int64_t>(tree.each - 2, 1));
}

NamedNodes named_nodes(const Leaf& which, const detail::Merge& merge, int kept) {
  if (which.last) return {merge.after - 1, merge.before, Access::read};
  if (which.index) return {0, kept, Access::update};
  if (merge.before == 0) return {0, kept, Access::write};
  if (merge.after > merge.before) return {merge.before, merge.after, Access::write};
  return {merge.after - 1, merge.before, Access::update};
}

}  // namespace

Op add_leaf(const Program& program, std::string name, Tensor leaf, const std::vector<Tensor>& kept,
            const std::vector<Range>& ranges, const Leaf& which, const SumTree& tree) {
  const Dtype dtype = buffer(program, leaf).dtype;
  const detail::Merge merge = which.index ? detail::Merge{} : tree.merge(which.number, which.last);
  const NamedNodes nodes = named_nodes(which, merge, static_cast<int>(kept.size()));
  Op op;
  op.name = std::move(name);
  const UseIndex index = which.index ? op.add_use({which.index, Access::read}) : UseIndex{};
  std::vector<Part> parts;
  double elements = 0;
  for (const Range range : ranges) {
    Part& part = parts.emplace_back();
    part.count = range.end - range.begin;
    for (int node = nodes.begin; node < nodes.end; ++node)
      part.kept.push_back(op.add_use({kept[static_cast<std::size_t>(node)], nodes.access, range}));
    part.leaf = op.add_uses(program.uses(leaf, range, which.last ? Access::update : Access::read));
    elements += static_cast<double>(part.count);
  }
  // A leaf and the nodes that it meets are read, and a sum is written.
  const double met = which.index ? met_between(tree) : merge.before - merge.after + 1;
  op.cost = reading_and_writing(elements, 2 + met, dtype);
  op.launch = [=, last = which.last](Queue& q, Views v) {
    execution::with_accumulation_type(dtype, [&]<class A>() {
      for (const Part& part : parts) {
        detail::AddLeaf<A> add{};
        add.leaf = part.leaf.in(v).as<A>();
        int node = nodes.begin;
        for (const UseIndex one : part.kept) add.kept[node++] = one.in(v).as<A>();
        add.index = index ? index.in(v).as<const std::int32_t>() : nullptr;
        add.begin = tree.begin(tree.rank);
        add.merge = merge;
        add.last = last;
        execution::parallel_for(q, part.count, add);
      }
    });
  };
  return op;
}

Op add_nodes(const Program& program, std::string name, Tensor nodes, Tensor sums,
             const SumTree& tree) {
  const Dtype dtype = buffer(program, sums).dtype;
  const std::int64_t count = buffer(program, sums).elements();
  STOWAGE_ASSERT(buffer(program, nodes).elements() == count * tree.all_nodes(),
                 "{} adds {} nodes of {} elements, not {}", name, tree.all_nodes(), count,
                 buffer(program, nodes).elements());
  Op op;
  op.name = std::move(name);
  const UseIndex all = op.add_use({nodes, Access::read}), out = op.add_use({sums, Access::write});
  op.cost = reading_and_writing(static_cast<double>(count), tree.all_nodes() + 1, dtype);
  op.launch = [=](Queue& q, Views v) {
    execution::with_accumulation_type(dtype, [&]<class A>() {
      execution::parallel_for(q, count,
                              detail::AddNodes<A>{.others = all.in(v).as<const A>(),
                                                  .stride = count,
                                                  .own = {},
                                                  .out = out.in(v).as<A>(),
                                                  .each = tree.each,
                                                  .rank = -1,
                                                  .ranks = tree.ranks});
    });
  };
  return op;
}

Op add_rows(const Program& program, std::string name, Piece rows, Tensor sums) {
  const Dtype dtype = buffer(program, sums).dtype;
  const std::int64_t count = buffer(program, sums).elements();
  const Range range = program.resolve({rows.tensor, Access::read, rows.range});
  const auto number = static_cast<int>((range.end - range.begin) / count);
  STOWAGE_ASSERT(number * count == range.end - range.begin && number > 0,
                 "{} adds rows of {} elements, not {}", name, count, range.end - range.begin);
  Op op;
  op.name = std::move(name);
  const UseIndex all = op.add_use({rows.tensor, Access::read, range});
  const UseIndex out = op.add_use({sums, Access::write});
  op.cost = reading_and_writing(static_cast<double>(count), number + 1, dtype);
  op.launch = [=](Queue& q, Views v) {
    const auto* first = all.in(v).as<const std::byte>();
    sum_rows(q, first + static_cast<std::size_t>(count) * size_bytes(dtype), first,
             out.in(v).as<void>(), count, dtype, 0, number);
  };
  return op;
}

}  // namespace stowage::parallel
