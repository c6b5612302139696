#include "parallel/ranks.hpp"

#include <utility>

#include "execution/error.hpp"
#include "parallel/collectives.hpp"

namespace stowage::parallel {

using execution::Access;
using execution::Dtype;
using execution::Op;
using execution::Program;
using execution::Range;
using execution::Use;

RankGroup::RankGroup(std::string name, std::vector<int> members, int rank,
                     std::shared_ptr<Collectives> collectives)
    : name_(std::move(name)), members_(std::move(members)), rank_(rank), collectives_(std::move(collectives)) {}

Range RankGroup::share(Range range, int rank) const {
  const std::int64_t count = range.end - range.begin;
  STOWAGE_ASSERT(count % size() == 0, "{} elements do not divide among {} ranks", count, size());
  return {range.begin + rank * (count / size()), range.begin + (rank + 1) * (count / size())};
}

namespace {
Op make(const RankGroup& g, std::string name, std::string kind, std::int64_t count, Dtype dtype, std::string detail, double bytes) {
  Op op; op.lane = execution::Lane::comm; op.name = std::move(name);
  op.cost = {static_cast<double>(count), bytes};
  op.communication = execution::Communication{std::move(kind), g.name(), g.members(), count, dtype, std::move(detail), {}};
  return op;
}
}

Op RankGroup::all_reduce(Program& program, std::string name, Piece piece, Reduction reduction, Dtype wire) const {
  const Range r = program.resolve({piece.tensor, Access::update, piece.range});
  const Dtype dtype = program.info(piece.tensor).buffers[0].dtype;
  const std::int64_t count = r.end - r.begin;
  Op op = make(*this, std::move(name), "all_reduce", count, dtype, std::string(parallel::name(reduction)), 2.0 * (size()-1)/size()*double(count)*double(size_bytes(wire)));
  op.uses = program.uses(piece.tensor, r, Access::update);
  if (op.uses.empty()) op.uses = {{piece.tensor, Access::update, r}};
  op.launch = [c = collectives_, count, dtype, reduction](execution::Queue& q, std::span<const execution::View> v) {
    c->all_reduce(q, 0, v[0].as<void>(), count, dtype, reduction);
  };
  return op;
}
Op RankGroup::all_reduce(Program& program, std::string name, Piece piece, Reduction reduction) const {
  return all_reduce(program, std::move(name), piece, reduction, program.info(piece.tensor).buffers[0].dtype);
}
Op RankGroup::reduce_scatter(Program& program, std::string name, Piece piece, Dtype wire) const {
  const Range r = program.resolve({piece.tensor, Access::update, piece.range});
  const Dtype dtype = program.info(piece.tensor).buffers[0].dtype;
  const std::int64_t count = r.end - r.begin;
  Op op = make(*this, std::move(name), "reduce_scatter", count, dtype, "sum", 1.0 * (size()-1)/size()*double(count)*double(size_bytes(wire)));
  op.uses = program.uses(piece.tensor, r, Access::update);
  op.launch = [c = collectives_, count, dtype](execution::Queue& q, std::span<const execution::View> v) {
    c->all_reduce(q, 0, v[0].as<void>(), count, dtype, Reduction::sum);
  };
  return op;
}
Op RankGroup::all_gather(Program& program, std::string name, Piece piece) const {
  const Range r = program.resolve({piece.tensor, Access::update, piece.range});
  const Dtype dtype = program.info(piece.tensor).buffers[0].dtype;
  const std::int64_t count = r.end - r.begin;
  Op op = make(*this, std::move(name), "all_gather", count, dtype, "", 1.0 * (size()-1)/size()*double(count)*double(size_bytes(dtype)));
  for (int i = 0; i < size(); ++i)
    op.uses.push_back({piece.tensor, i == rank_ ? Access::read : Access::write, share(r, i)});
  op.launch = [c = collectives_, count, dtype](execution::Queue& q, std::span<const execution::View> v) {
    c->all_gather(q, v[0].as<void>(), count, dtype);
  };
  return op;
}

Ranks planned_ranks(const GridShape& shape, int rank) {
  Ranks ranks;
  ranks.shape = shape;
  ranks.coordinates = coordinates(shape, rank);
  for (std::size_t g = 0; g < kGroups; ++g) {
    const auto m = members(shape, rank, axes(static_cast<Group>(g)));
    int mine = 0;
    for (std::size_t i = 0; i < m.size(); ++i) if (m[i] == rank) mine = static_cast<int>(i);
    ranks.groups[g] = std::make_shared<RankGroup>(m.size() == 1 ? "alone" : "data", m, mine);
  }
  return ranks;
}

}  // namespace stowage::parallel
