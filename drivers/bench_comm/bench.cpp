#include "drivers/bench_comm/bench.hpp"

#include <algorithm>

#include "drivers/bench_comm/timing.hpp"
#include "execution/error.hpp"
#include "execution/plan.hpp"
#include "forecast/plan/options.hpp"
#include "inputs/data/run_section.hpp"
#include "run/machine/agreement.hpp"

namespace stowage::drivers {
namespace {

using execution::align_up;
using parallel::Collectives;
using parallel::RankGroup;

constexpr double kSampleBytes = 256e6;  ///< of one sample: long collectives go a few at a time

int calls_of(std::size_t bytes, std::int64_t most) {
  const double fit = kSampleBytes / static_cast<double>(bytes);
  return static_cast<int>(std::clamp(fit, 1.0, static_cast<double>(most)));
}

/// @throws Error (exit 2) where there is no GPU to keep busy
std::unique_ptr<Neighbour> neighbour(const CommOptions& options, execution::Backend& backend) {
  if (options.overlapping.empty()) return nullptr;
#if STOWAGE_HAVE_CUDA
  if (backend.name() == "cuda") return overlapping_products(backend);
#endif
  execution::throw_usage("--beside {}: needs GPUs, and the collectives run on the {} backend",
                         options.overlapping, backend.name());
}

std::vector<std::shared_ptr<const RankGroup>> communicating(const parallel::Ranks& ranks) {
  std::vector<std::shared_ptr<const RankGroup>> some;
  for (const auto& group : ranks.groups)
    if (group->size() > 1 && std::ranges::find(some, group) == some.end()) some.push_back(group);
  return some;
}

}  // namespace

BenchComm::BenchComm(const parallel::Communicator& world, const inputs::Deck& deck,
                     const CommOptions& options, run::Machine& machine)
    : world_(world),
      deck_(deck),
      options_(options),
      backend_(machine.backend()),
      sizes_(sizes(options.sizes, world.size())),
      ranks_(machine.connect(deck, world)),
      groups_(communicating(ranks_)),
      queue_(backend_.make_queue(execution::Lane::comm, "collectives")),
      overlapping_(neighbour(options, backend_)),
      checker_(backend_) {
  const std::size_t range = align_up(sizes_.back());
  const auto most = static_cast<std::int64_t>(sizes_.back() / sizeof(float));
  std::size_t room = 0;
  for (const auto& group : groups_)
    room = std::max(room, parallel::reduce_workspace_bytes(most, execution::Dtype::fp32,
                                                           execution::Dtype::fp32, group->size()));
  arena_ = backend_.allocate(execution::MemoryKind::device, 2 * range + room);
  from_ = arena_->data();
  to_ = from_ + range;
  workspace_ = to_ + range;
  parallel::attach(ranks_, {arena_->data(), arena_->bytes()});
}

void BenchComm::open(std::size_t group) {
  exchanges_.clear();
  const std::shared_ptr<const RankGroup>& opened = groups_[group];
  group_ = opened.get();
  // The lowest member names the group: another for all that are apart.
  exchanges_ = all_exchanges(world_.split(group_->members().front(), world_.rank()),
                             std::shared_ptr<const Collectives>(opened, opened->collectives()),
                             deck_, backend_, sizes_, workspace_);
}

std::vector<CommRow> BenchComm::run(Kind kind) {
  std::vector<CommRow> rows;
  for (const std::size_t size : sizes_)
    for (CommRow& row : run(kind, size)) rows.push_back(std::move(row));
  return rows;
}

std::vector<CommRow> BenchComm::run(Kind kind, std::size_t size) {
  const auto seed = static_cast<std::uint64_t>(inputs::read(deck_, &inputs::RunConfig::seed));
  const int rank = group_->rank(), ranks = group_->size();
  std::vector<CommRow> rows;
  std::vector<std::function<void(execution::Queue&)>> contenders;
  for (const Exchange& exchange : exchanges_)
    for (const bool in_place : {false, true}) {
      if (exchange.kind != kind || !(in_place ? exchange.in_place : exchange.out_of_place))
        continue;
      const Operands at = operands(kind, size, in_place, from_, to_, rank, ranks);
      const auto& one = contenders.emplace_back(
          [&, at](execution::Queue& queue) { exchange.enqueue(queue, at); });
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < options_.checks; ++i)
        wrong += checker_.check(
            *queue_, definition(kind, at, rank, ranks, !exchange.rank_order, seed), at, rank, one);
      rows.push_back({.group = group_->name(),
                      .ranks = ranks,
                      .kind = kind,
                      .library = exchange.library,
                      .version = exchange.version,
                      .algorithm = exchange.algorithm,
                      .in_place = in_place,
                      .size = size,
                      .bytes = at.bytes,
                      .count = at.count,
                      .calls = calls_of(at.bytes, options_.calls),
                      .graph = options_.graph,
                      .overlapping = options_.overlapping,
                      .wrong = static_cast<std::int64_t>(world_.sum(static_cast<double>(wrong))),
                      .rank_time_s = {},
                      .time_s = {}});
    }
  const std::vector<std::vector<double>> times = time_calls(world_, backend_, *queue_, contenders,
                                                            {.samples = options_.samples,
                                                             .warm_up = options_.warm_up,
                                                             .calls = rows.front().calls,
                                                             .graph = options_.graph,
                                                             .overlapping = overlapping_.get()});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].rank_time_s = run::by_rank(world_, times[i]);
    rows[i].time_s =
        run::largest_of_ranks(rows[i].rank_time_s, static_cast<std::size_t>(world_.size()));
  }
  return rows;
}

void BenchComm::close() {
  exchanges_.clear();
  parallel::attach(ranks_, {});
  world_.barrier();  // nobody maps this memory any more when it is given back
}

}  // namespace stowage::drivers
