#include "parallel/groups/ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "execution/error.hpp"
#include "parallel/groups/sum_tree.hpp"

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

namespace {

Range range_of(const Program& program, const Piece& piece) {
  const execution::TensorInfo& info = program.info(piece.tensor);
  STOWAGE_ASSERT(info.buffers.size() == 1, "ranks exchange tensors of one buffer, {} has {}",
                 info.name, info.buffers.size());
  return program.resolve({piece.tensor, Access::read, piece.range});
}
Dtype dtype_of(const Program& program, const Piece& piece) {
  return program.info(piece.tensor).buffers.front().dtype;
}
std::int64_t count_of(const Program& program, const Piece& piece) {
  const Range range = range_of(program, piece);
  return range.end - range.begin;
}
std::size_t bytes_of(const Program& program, const Piece& piece) {
  return static_cast<std::size_t>(count_of(program, piece)) *
         execution::size_bytes(dtype_of(program, piece));
}
/// Bytes of the part that a rank gives to a gather; of a payload with its scale, the payload's.
std::size_t part_bytes(const Program& program, const Piece& part) {
  const Range range = program.resolve({part.tensor, Access::read, part.range});
  return static_cast<std::size_t>(range.end - range.begin) *
         execution::size_bytes(dtype_of(program, part));
}

UseIndex use(Op& op, const Program& program, const Piece& piece, Access access) {
  return op.add_uses(program.uses(piece.tensor, range_of(program, piece), access));
}

/// The address of a piece: the uses of its parts may begin behind padding, which nobody reads.
UseIndex use_address(Op& op, const Program& program, const Piece& piece) {
  const std::int64_t begin = range_of(program, piece).begin;
  return op.add_use({piece.tensor, Access::read, {begin, begin}});
}

std::string text(std::string_view what, Dtype dtype, Dtype wire) {
  return wire == dtype ? std::string(what)
                       : fmt::format("{}, {} on the wire", what, execution::name(wire));
}

/// The groups by their names, those of one axis first: of groups with the same members the first
/// names them all.
constexpr Group kByName[kGroups] = {Group::tensor,
                                    Group::context,
                                    Group::expert,
                                    Group::pipeline,
                                    Group::data,
                                    Group::experts,
                                    Group::dense_gradients,
                                    Group::expert_gradients,
                                    Group::replicated_gradients,
                                    Group::model,
                                    Group::world};

}  // namespace

RankGroup::RankGroup(std::string name, std::vector<int> members, int rank,
                     std::shared_ptr<const Collectives> collectives)
    : name_(std::move(name)),
      members_(std::move(members)),
      rank_(rank),
      collectives_(std::move(collectives)) {}

Range RankGroup::share(Range range, int rank) const {
  const std::int64_t count = range.end - range.begin;
  STOWAGE_ASSERT(count % size() == 0, "{} elements do not divide among {} ranks", count, size());
  const std::int64_t share = count / size();
  return {range.begin + rank * share, range.begin + (rank + 1) * share};
}

/// @param share of the piece's bytes that a rank sends and receives
Op RankGroup::begin(const Program& program, std::string name, const char* kind, const Piece& piece,
                    double share, Dtype wire) const {
  Op op;
  op.lane = execution::Lane::comm;
  op.name = std::move(name);
  const std::int64_t count = count_of(program, piece);
  op.cost = {static_cast<double>(count),
             share * static_cast<double>(count) * static_cast<double>(size_bytes(wire))};
  op.communication =
      execution::Communication{kind, name_, members_, count, dtype_of(program, piece), {}, {}};
  return op;
}

RankGroup::Call RankGroup::call(const std::string& name) const {
  return {collectives_, collectives_ ? collectives_->transport().announce(name) : 0};
}

const Collectives* RankGroup::Call::operator->() const {
  STOWAGE_ASSERT(collectives, "an op of ranks that are only planned for was launched");
  return collectives.get();
}

execution::Launch RankGroup::bound(Call call, std::vector<Transfer> transfers) {
  return [call = std::move(call), transfers = std::move(transfers)](Queue& q, Views v) {
    std::vector<Transfer> all = transfers;
    auto transfer = all.begin();
    for (const execution::View& view : v) (transfer++)->data = view.as<void>();
    call->exchange(q, call.index, all);
  };
}

Op RankGroup::all_reduce(Program& program, std::string name, Piece piece,
                         Reduction reduction) const {
  return all_reduce(program, std::move(name), piece, reduction, dtype_of(program, piece));
}

Tensor RankGroup::workspace(Program& program, std::string name, std::int64_t elements, Dtype dtype,
                            Dtype wire) const {
  const std::size_t bytes = reduce_workspace_bytes(elements, dtype, wire, size());
  return program.scratch(std::move(name), Dtype::uint8, {static_cast<std::int64_t>(bytes)});
}

UseIndex RankGroup::use_workspace(Op& op, Program& program, const Piece& piece, Dtype wire,
                                  Tensor workspace) const {
  if (!workspace)
    workspace = this->workspace(program, op.name + "/workspace", count_of(program, piece),
                                dtype_of(program, piece), wire);
  return op.add_use({workspace, Access::write});
}

Op RankGroup::all_reduce(Program& program, std::string name, Piece piece, Reduction reduction,
                         Dtype wire, Tensor workspace) const {
  const Dtype dtype = dtype_of(program, piece);
  const std::int64_t count = count_of(program, piece);
  Op op = begin(program, std::move(name), "all_reduce", piece, 2.0 * (size() - 1) / size(), wire);
  op.communication->detail = text(parallel::name(reduction), dtype, wire);
  const UseIndex data = use(op, program, piece, Access::update);
  const UseIndex room = use_workspace(op, program, piece, wire, workspace);
  op.launch = [=, call = call(op.name)](Queue& q, Views v) {
    call->all_reduce(q, call.index, data.in(v).as<void>(), count, dtype, reduction, wire,
                     room.in(v).as<void>());
  };
  return op;
}

Op RankGroup::reduce_scatter(Program& program, std::string name, Piece piece, Dtype wire,
                             Tensor workspace) const {
  const Dtype dtype = dtype_of(program, piece);
  const std::int64_t count = count_of(program, piece);
  Op op =
      begin(program, std::move(name), "reduce_scatter", piece, 1.0 * (size() - 1) / size(), wire);
  op.communication->detail = text("sum", dtype, wire);
  const UseIndex data = use_address(op, program, piece);
  for (int r = 0; r < size(); ++r)
    use(op, program, {piece.tensor, share(range_of(program, piece), r)},
        r == rank_ ? Access::update : Access::read);
  const UseIndex room = use_workspace(op, program, piece, wire, workspace);
  op.launch = [=, call = call(op.name)](Queue& q, Views v) {
    call->reduce_scatter(q, call.index, data.in(v).as<void>(), count, dtype, wire,
                         room.in(v).as<void>());
  };
  return op;
}

/// Ranks have different numbers of nodes; what any of them reads all do, so their plans are alike.
Op RankGroup::add_by_tree(Program& program, std::string name, Piece piece,
                          const std::vector<Tensor>& kept, const SumTree& tree, bool scatter,
                          Tensor workspace) const {
  const Dtype dtype = dtype_of(program, piece);
  const std::int64_t count = count_of(program, piece);
  const int most = tree.most_nodes();
  const double share = (size() - 1.0) / size();
  Op op = begin(program, std::move(name), scatter ? "reduce_scatter" : "all_reduce", piece,
                share * (most + (scatter ? 0 : 1)), dtype);
  op.communication->detail = tree.text();
  const Range all = range_of(program, piece);
  const UseIndex last = use_address(op, program, piece);
  std::vector<UseIndex> own;
  for (int node = 0; node + 1 < most; ++node)
    own.push_back(use_address(op, program, {kept.at(static_cast<std::size_t>(node)), all}));
  own.resize(static_cast<std::size_t>(tree.nodes(tree.rank)) - 1);
  own.push_back(last);
  for (int node = 0; node + 1 < most; ++node)  // padding is no part of them
    for (const execution::Use& part : program.uses(piece.tensor, all, Access::read))
      op.uses.push_back({kept.at(static_cast<std::size_t>(node)), Access::read, part.range});
  if (!scatter) use(op, program, piece, Access::update);
  for (int r = 0; scatter && r < size(); ++r)
    use(op, program, {piece.tensor, this->share(all, r)},
        r == rank_ ? Access::update : Access::read);
  if (!workspace)
    workspace =
        program.scratch(op.name + "/workspace", Dtype::uint8,
                        {static_cast<std::int64_t>(tree_workspace_bytes(count, dtype, tree))});
  const UseIndex room = op.add_use({workspace, Access::write});
  op.launch = [=, call = call(op.name)](Queue& q, Views v) {
    std::vector<void*> nodes;
    for (const UseIndex node : own) nodes.push_back(node.in(v).as<void>());
    call->add_by_tree(q, call.index, nodes, count, dtype, tree, scatter, room.in(v).as<void>());
  };
  return op;
}

Op RankGroup::all_gather(Program& program, std::string name, Piece piece) const {
  Op op = begin(program, std::move(name), "all_gather", piece, 1.0 * (size() - 1) / size(),
                dtype_of(program, piece));
  std::vector<execution::Use> shares;
  for (int r = 0; r < size(); ++r)
    shares.push_back({piece.tensor, r == rank_ ? Access::read : Access::write,
                      share(range_of(program, piece), r)});
  const UseIndex data = op.add_uses(shares);
  const std::size_t bytes = bytes_of(program, piece) / static_cast<std::size_t>(size());
  op.launch = [=, call = call(op.name)](Queue& q, Views v) {
    call->all_gather(q, call.index, data.in(v).as<void>(), bytes);
  };
  return op;
}

Op RankGroup::send_partials(Program& program, std::string name, Piece piece, Piece others,
                            const std::vector<int>& distances, Range some) const {
  const Range all = range_of(program, piece), arriving = range_of(program, others);
  const std::int64_t part = (all.end - all.begin) / size(), count = some.end - some.begin;
  STOWAGE_ASSERT(part * size() == all.end - all.begin &&
                     part * (size() - 1) == arriving.end - arriving.begin && some.end <= part,
                 "{} hands out {} of {} elements and gets {}", name, count, all.end - all.begin,
                 arriving.end - arriving.begin);
  const auto steps = static_cast<double>(distances.size());
  Op op = begin(program, std::move(name), "all_to_all", piece,
                steps * static_cast<double>(count) / static_cast<double>(part * size()),
                dtype_of(program, piece));
  op.communication->detail =
      fmt::format("{} of a part to ranks {} behind", count, fmt::join(distances, ", "));
  std::vector<Transfer> transfers;
  const std::size_t bytes = static_cast<std::size_t>(count) * size_bytes(dtype_of(program, piece));
  for (const int distance : distances) {
    const int to = behind(distance), from = before(distance);
    const std::int64_t sent = all.begin + to * part + some.begin;
    const std::int64_t got = arriving.begin + (from < rank_ ? from : from - 1) * part + some.begin;
    op.uses.push_back({piece.tensor, Access::read, {sent, sent + count}});
    op.uses.push_back({others.tensor, Access::write, {got, got + count}});
    transfers.push_back({to, true, nullptr, bytes});
    transfers.push_back({from, false, nullptr, bytes});
  }
  op.launch = bound(call(op.name), std::move(transfers));
  return op;
}

Op RankGroup::reduce_partials(Program& program, std::string name, Piece piece, Piece others,
                              Piece sums) const {
  const Range own = share(range_of(program, piece), rank_);
  const std::int64_t count = own.end - own.begin;
  const Dtype dtype = dtype_of(program, piece);
  STOWAGE_ASSERT(
      count_of(program, others) == count * (size() - 1) && count_of(program, sums) == count,
      "{} has {} elements for {} sums of {}", name, count_of(program, others) + count,
      count_of(program, sums), size());
  Op op;
  op.name = std::move(name);
  op.cost = {static_cast<double>(count * (size() - 1)),
             static_cast<double>(count * (size() + 1)) * static_cast<double>(size_bytes(dtype))};
  const UseIndex mine = op.add_use({piece.tensor, Access::read, own});
  const UseIndex theirs = op.add_use({others.tensor, Access::read, others.range});
  const UseIndex sum = op.add_use({sums.tensor, Access::write, sums.range});
  op.launch = [=, rank = rank_, ranks = size()](Queue& q, Views v) {
    sum_rows(q, theirs.in(v).as<const void>(), mine.in(v).as<const void>(), sum.in(v).as<void>(),
             count, dtype, rank, ranks);
  };
  return op;
}

Op RankGroup::all_gather_from(Program& program, std::string name, Piece share, Piece piece) const {
  Op op = begin(program, std::move(name), "all_gather", piece, 1.0 * (size() - 1) / size(),
                dtype_of(program, piece));
  const std::size_t bytes = part_bytes(program, share);
  STOWAGE_ASSERT(bytes * static_cast<std::size_t>(size()) == bytes_of(program, piece),
                 "{} gathers {} bytes from shares of {}", op.name, bytes_of(program, piece), bytes);
  const UseIndex own = op.add_use({share.tensor, Access::read, share.range});
  const UseIndex all = op.add_use({piece.tensor, Access::write, piece.range});
  op.launch = [=, call = call(op.name)](Queue& q, Views v) {
    call->all_gather(q, call.index, own.in(v).as<void>(), all.in(v).as<void>(), bytes);
  };
  return op;
}

Op RankGroup::gather_ring(Program& program, std::string name, Piece mine, Piece piece,
                          const std::vector<int>& distances) const {
  const std::size_t bytes = part_bytes(program, mine);
  STOWAGE_ASSERT(bytes * static_cast<std::size_t>(size()) == bytes_of(program, piece),
                 "{} gathers {} bytes from parts of {}", name, bytes_of(program, piece), bytes);
  Op op = begin(program, std::move(name), "all_gather", piece,
                static_cast<double>(distances.size()) / size(), dtype_of(program, piece));
  op.communication->detail = fmt::format("of ranks {} before", fmt::join(distances, ", "));
  std::vector<Transfer> transfers;
  for (const int distance : distances) {
    const Range from = share(range_of(program, piece), before(distance));
    op.uses.push_back({mine.tensor, Access::read, mine.range});
    op.uses.push_back({piece.tensor, Access::write, from});
    transfers.push_back({behind(distance), true, nullptr, bytes});
    transfers.push_back({before(distance), false, nullptr, bytes});
  }
  op.launch = bound(call(op.name), std::move(transfers));
  return op;
}

Op RankGroup::all_to_all(Program& program, std::string name, Piece from, Piece to) const {
  Op op = begin(program, std::move(name), "all_to_all", from, 1.0 * (size() - 1) / size(),
                dtype_of(program, from));
  STOWAGE_ASSERT(bytes_of(program, from) == bytes_of(program, to), "{} exchanges {} and {} bytes",
                 op.name, bytes_of(program, from), bytes_of(program, to));
  (void)share(range_of(program, from), 0);
  const UseIndex out = op.add_use({from.tensor, Access::read, range_of(program, from)});
  const UseIndex in = op.add_use({to.tensor, Access::write, range_of(program, to)});
  const std::size_t bytes = bytes_of(program, from) / static_cast<std::size_t>(size());
  op.launch = [=, call = call(op.name)](Queue& q, Views v) {
    call->all_to_all(q, call.index, out.in(v).as<void>(), in.in(v).as<void>(), bytes);
  };
  return op;
}

Op RankGroup::broadcast(Program& program, std::string name, Piece piece, int root) const {
  Op op = begin(program, std::move(name), "broadcast", piece, 1, dtype_of(program, piece));
  op.communication->detail = fmt::format("root {}", root);
  const UseIndex data = op.add_use(
      {piece.tensor, rank_ == root ? Access::read : Access::write, range_of(program, piece)});
  const std::size_t bytes = bytes_of(program, piece);
  op.launch = [=, call = call(op.name)](Queue& q, Views v) {
    call->broadcast(q, call.index, data.in(v).as<void>(), bytes, root);
  };
  return op;
}

Op RankGroup::exchange(Program& program, std::string name,
                       const std::vector<Message>& messages) const {
  Op op;
  op.lane = execution::Lane::comm;
  op.name = std::move(name);
  op.communication = execution::Communication{"exchange", name_, members_, 0, Dtype::fp32, {}, {}};
  if (!messages.empty()) {
    op.communication->dtype = dtype_of(program, messages.front().piece);
    op.cost.flops = static_cast<double>(count_of(program, messages.front().piece));
  }
  std::vector<Transfer> transfers;
  double sent = 0, received = 0;
  for (const Message& message : messages) {
    const std::size_t bytes = bytes_of(program, message.piece);
    op.uses.push_back({message.piece.tensor, message.sends ? Access::read : Access::write,
                       range_of(program, message.piece)});
    op.communication->transfers.push_back(
        {message.peer, message.sends, count_of(program, message.piece), message.what});
    transfers.push_back({message.peer, message.sends, nullptr, bytes});
    (message.sends ? sent : received) += static_cast<double>(bytes);
  }
  op.cost.bytes = std::max(sent, received);
  op.launch = bound(call(op.name), std::move(transfers));
  return op;
}

Ranks make_ranks(const GridShape& shape, int rank, const MakeCollectives& make) {
  Ranks ranks{shape, coordinates(shape, rank), {}};
  std::vector<std::shared_ptr<const RankGroup>> made;
  for (const Group group : kByName) {
    std::vector<int> all = members(shape, rank, axes(group));
    std::shared_ptr<const RankGroup>& at = ranks.groups[static_cast<std::size_t>(group)];
    for (const auto& other : made)
      if (other->members() == all) at = other;
    if (at) continue;
    const auto mine = static_cast<int>(std::find(all.begin(), all.end(), rank) - all.begin());
    const std::string name(parallel::name(group));
    auto collectives = all.size() > 1 ? make(name, all) : nullptr;
    at = made.emplace_back(
        std::make_shared<RankGroup>(name, std::move(all), mine, std::move(collectives)));
  }
  return ranks;
}

void attach(const Ranks& ranks, std::span<std::byte> arena) {
  std::vector<const RankGroup*> done;
  for (const auto& group : ranks.groups) {
    if (std::find(done.begin(), done.end(), group.get()) != done.end()) continue;
    done.push_back(group.get());
    if (group->collectives() != nullptr) group->collectives()->transport().attach(arena);
  }
}

Ranks planned_ranks(const GridShape& shape, int rank) {
  return make_ranks(shape, rank, [](const std::string&, const std::vector<int>&) {
    return std::shared_ptr<const Collectives>();
  });
}

}  // namespace stowage::parallel
