#include "parallel/groups/collectives.hpp"

#include <algorithm>
#include <vector>

#include "execution/error.hpp"
#include "parallel/groups/overlapping_copy.hpp"
#include "parallel/groups/rank_order_reduce.hpp"
#include "parallel/groups/sum_tree.hpp"

namespace stowage::parallel {

using execution::Bf16;
using execution::Dtype;
using execution::Queue;
using execution::size_bytes;

namespace {

/// Up to this size latency binds: one exchange of all bytes beats two of fewer.
constexpr std::size_t kShortBytes = 32 << 10;
/// Shares begin at multiples of this many elements, but the last may be short or empty.
constexpr std::int64_t kShareGrain = 8;

std::int64_t share_of(std::int64_t count, int ranks) {
  const std::int64_t share = (count + ranks - 1) / ranks;
  return count % ranks == 0 ? share : (share + kShareGrain - 1) / kShareGrain * kShareGrain;
}

bool is_short(std::int64_t count, Dtype dtype, Dtype wire) {
  return wire == dtype && static_cast<std::size_t>(count) * size_bytes(dtype) <= kShortBytes;
}

/// Elements that a rank sends to another at once. Long ones go in rows of so many, which keeps the
/// workspace small; NCCL reaches its rate with a quarter of them.
constexpr std::int64_t kMostRow = std::int64_t{4} << 20;

std::int64_t row_of(std::int64_t count, Dtype dtype, Dtype wire, int ranks) {
  return is_short(count, dtype, wire) ? count : std::min(share_of(count, ranks), kMostRow);
}

/// Calls `reduce.operator()<Out, Wire, A>()` with the types of a reduction.
template <class F>
void with_types(Dtype dtype, Dtype wire, F&& reduce) {
  if (dtype == Dtype::fp32 && wire == Dtype::bf16)
    return reduce.template operator()<float, Bf16, float>();
  STOWAGE_ASSERT(dtype == wire, "{} elements do not travel as {}", name(dtype), name(wire));
  switch (dtype) {
    case Dtype::fp64:
      return reduce.template operator()<double, double, double>();
    case Dtype::fp32:
      return reduce.template operator()<float, float, float>();
    case Dtype::bf16:
      return reduce.template operator()<Bf16, Bf16, float>();
    case Dtype::int32:
      return reduce.template operator()<std::int32_t, std::int32_t, std::int32_t>();
    case Dtype::int64:
      return reduce.template operator()<std::int64_t, std::int64_t, std::int64_t>();
    case Dtype::uint8:
    case Dtype::e4m3:
    case Dtype::e5m2:
      break;
  }
  throw execution::Error(execution::Exit::runtime,
                         fmt::format("ranks cannot combine {} elements", name(dtype)));
}

}  // namespace

std::string_view name(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return "sum";
    case Reduction::min:
      return "min";
    case Reduction::max:
      return "max";
  }
  return "?";
}

/// What is reduced, as it is and as it travels.
struct Collectives::Buffer {
  std::byte* data;
  std::int64_t count;
  Dtype dtype, wire;
  std::byte* workspace;
  int rank, ranks;
  std::int64_t share = share_of(count, ranks);
  /// Elements of a row of the workspace: those of all ranks that are on their way at once.
  std::int64_t row_length = row_of(count, dtype, wire, ranks);

  std::int64_t begin(int r) const { return std::min(r * share, count); }
  std::int64_t elements(int r) const { return begin(r + 1) - begin(r); }
  bool rounds() const { return wire != dtype; }
  std::byte* at(std::int64_t element) const {
    return data + static_cast<std::size_t>(element) * size_bytes(dtype);
  }
  std::size_t wire_bytes(std::int64_t some) const {
    return static_cast<std::size_t>(some) * size_bytes(wire);
  }
  /// Rows of what arrives from the others; behind them, of what is sent rounded.
  std::byte* row(int index) const { return workspace + wire_bytes(index * row_length); }
  std::byte* arriving(int r) const { return row(r < rank ? r : r - 1); }
  std::byte* rounded(int r) const { return row(ranks - 1 + r); }
};

std::size_t reduce_workspace_bytes(std::int64_t count, Dtype dtype, Dtype wire, int ranks) {
  // Shares of fewer elements may be rounded up further, and a short one takes longer rows.
  const std::int64_t share =
      ((count + ranks - 1) / ranks + kShareGrain - 1) / kShareGrain * kShareGrain;
  const auto most_short = static_cast<std::int64_t>(kShortBytes / size_bytes(dtype));
  const std::int64_t row =
      std::max(std::min(share, kMostRow), wire == dtype ? std::min(count, most_short) : 0);
  const std::int64_t rows = ranks - 1 + (wire == dtype ? 0 : ranks);
  return static_cast<std::size_t>(std::max<std::int64_t>(rows * row, 1)) * size_bytes(wire);
}

void Collectives::all_reduce(Queue& queue, int index, void* data, std::int64_t count, Dtype dtype,
                             Reduction reduction, Dtype wire, void* workspace) const {
  const Buffer buffer{static_cast<std::byte*>(data),
                      count,
                      dtype,
                      wire,
                      static_cast<std::byte*>(workspace),
                      transport_->rank(),
                      transport_->size()};
  transport_->begin(queue, index);
  if (is_short(count, dtype, wire)) {
    reduce_all(queue, buffer, reduction);
  } else {
    sum_shares(queue, buffer, reduction);
    gather_shares(queue, buffer);
  }
  transport_->end(queue);
}

void Collectives::reduce_scatter(Queue& queue, int index, void* data, std::int64_t count,
                                 Dtype dtype, Dtype wire, void* workspace) const {
  STOWAGE_ASSERT(count % transport_->size() == 0, "{} elements do not divide among {} ranks", count,
                 transport_->size());
  transport_->begin(queue, index);
  sum_shares(queue,
             {static_cast<std::byte*>(data), count, dtype, wire, static_cast<std::byte*>(workspace),
              transport_->rank(), transport_->size()},
             Reduction::sum);
  transport_->end(queue);
}

/// Share r goes to rank r, which combines what it has of all ranks: a row of the workspace at a
/// time.
void Collectives::sum_shares(Queue& queue, const Buffer& b, Reduction reduction) const {
  const int me = transport_->rank();
  for (std::int64_t done = 0; done < b.share; done += b.row_length) {
    const auto left = [&](int r) {
      return std::clamp<std::int64_t>(b.elements(r) - done, 0, b.row_length);
    };
    const auto sent = [&](int r) { return b.rounds() ? b.rounded(r) : b.at(b.begin(r) + done); };
    std::vector<Transfer> transfers;
    if (b.rounds() && done > 0) transport_->move(queue, {});  // others have what was rounded before
    for (int r = 0; r < b.ranks; ++r) {
      if (b.rounds())
        execution::parallel_for(
            queue, left(r),
            detail::to_wire(reinterpret_cast<const float*>(b.at(b.begin(r) + done)),
                            reinterpret_cast<Bf16*>(b.rounded(r))));
      if (r == me) continue;
      transfers.push_back({r, true, sent(r), b.wire_bytes(left(r))});
      transfers.push_back({r, false, b.arriving(r), b.wire_bytes(left(me))});
    }
    transport_->move(queue, transfers);
    with_types(b.dtype, b.wire, [&]<class Out, class Wire, class A>() {
      execution::parallel_for(
          queue, left(me),
          detail::RankOrderReduce<Out, Wire, A>{
              reinterpret_cast<const Wire*>(b.row(0)), b.row_length,
              reinterpret_cast<const Wire*>(sent(me)),
              reinterpret_cast<Out*>(b.at(b.begin(me) + done)), me, b.ranks, reduction});
    });
  }
}

std::size_t tree_workspace_bytes(std::int64_t count, Dtype dtype, const SumTree& tree) {
  const std::int64_t row = std::min(share_of(count, tree.ranks), kMostRow);
  return static_cast<std::size_t>(tree.all_nodes() * std::max<std::int64_t>(row, 1)) *
         size_bytes(dtype);
}

/// As sum_shares, of every node that a rank has.
void Collectives::add_by_tree(Queue& queue, int index, std::span<void* const> own,
                              std::int64_t count, Dtype dtype, const SumTree& tree, bool scatter,
                              void* workspace) const {
  const Buffer b{static_cast<std::byte*>(own.back()),
                 count,
                 dtype,
                 dtype,
                 static_cast<std::byte*>(workspace),
                 transport_->rank(),
                 transport_->size(),
                 share_of(count, transport_->size()),
                 std::min(share_of(count, transport_->size()), kMostRow)};
  STOWAGE_ASSERT(!scatter || count % b.ranks == 0, "{} elements do not divide among {} ranks",
                 count, b.ranks);
  STOWAGE_ASSERT(std::ssize(own) == tree.nodes(b.rank) && tree.ranks == b.ranks,
                 "{} nodes on one of {} ranks, by a tree of {}", own.size(), b.ranks, tree.ranks);
  transport_->begin(queue, index);
  for (std::int64_t done = 0; done < b.share; done += b.row_length) {
    const auto left = [&](int r) {
      return std::clamp<std::int64_t>(b.elements(r) - done, 0, b.row_length);
    };
    const auto at = [&](void* node, int r) {
      return static_cast<std::byte*>(node) + b.wire_bytes(b.begin(r) + done);
    };
    std::vector<Transfer> transfers;
    for (int r = 0, row = 0; r < b.ranks; ++r) {
      if (r == b.rank) continue;
      for (void* const node : own)
        transfers.push_back({r, true, at(node, r), b.wire_bytes(left(r))});
      for (int node = 0; node < tree.nodes(r); ++node)
        transfers.push_back({r, false, b.row(row++), b.wire_bytes(left(b.rank))});
    }
    transport_->move(queue, transfers);
    execution::with_accumulation_type(dtype, [&]<class A>() {
      detail::AddNodes<A> add{};
      add.others = reinterpret_cast<const A*>(b.row(0));
      add.stride = b.row_length;
      for (std::size_t node = 0; node < own.size(); ++node)
        add.own[node] = reinterpret_cast<const A*>(at(own[node], b.rank));
      add.out = reinterpret_cast<A*>(at(own.back(), b.rank));
      add.each = tree.each;
      add.rank = b.rank;
      add.ranks = b.ranks;
      execution::parallel_for(queue, left(b.rank), add);
    });
  }
  if (!scatter) gather_shares(queue, b);
  transport_->end(queue);
}

void Collectives::gather_shares(Queue& queue, const Buffer& b) const {
  const int me = transport_->rank();
  std::vector<Transfer> transfers;
  for (int r = 0; r < b.ranks; ++r) {
    if (r == me) continue;
    const auto bytes = [&](int rank) {
      return static_cast<std::size_t>(b.elements(rank)) * size_bytes(b.dtype);
    };
    transfers.push_back({r, true, b.at(b.begin(me)), bytes(me)});
    transfers.push_back({r, false, b.at(b.begin(r)), bytes(r)});
  }
  transport_->move(queue, transfers);
}

/// All elements go to all ranks, and each combines them all.
void Collectives::reduce_all(Queue& queue, const Buffer& b, Reduction reduction) const {
  const int me = transport_->rank();
  std::vector<Transfer> transfers;
  for (int r = 0; r < b.ranks; ++r) {
    if (r == me) continue;
    transfers.push_back({r, true, b.data, b.wire_bytes(b.count)});
    transfers.push_back({r, false, b.arriving(r), b.wire_bytes(b.count)});
  }
  transport_->move(queue, transfers);
  transport_->move(queue, {});  // what was sent is written
  with_types(b.dtype, b.wire, [&]<class Out, class Wire, class A>() {
    execution::parallel_for(
        queue, b.count,
        detail::RankOrderReduce<Out, Wire, A>{
            reinterpret_cast<const Wire*>(b.row(0)), b.count, reinterpret_cast<const Wire*>(b.data),
            reinterpret_cast<Out*>(b.data), me, b.ranks, reduction});
  });
}

void Collectives::all_gather(Queue& queue, int index, void* data, std::size_t share_bytes) const {
  const auto own = static_cast<std::size_t>(transport_->rank()) * share_bytes;
  gather_others(queue, index, static_cast<std::byte*>(data) + own, data, share_bytes);
}

void Collectives::all_gather(Queue& queue, int index, const void* share, void* data,
                             std::size_t share_bytes) const {
  gather_others(queue, index, share, data, share_bytes);
  const auto own = static_cast<std::size_t>(transport_->rank()) * share_bytes;
  detail::overlapping_copy(queue, static_cast<std::byte*>(data) + own, share, share_bytes);
}

/// Everything but this rank's own part of `data`.
void Collectives::gather_others(Queue& queue, int index, const void* own, void* data,
                                std::size_t share_bytes) const {
  std::vector<Transfer> transfers;
  for (int r = 0; r < transport_->size(); ++r) {
    if (r == transport_->rank()) continue;
    void* const part = static_cast<std::byte*>(data) + static_cast<std::size_t>(r) * share_bytes;
    transfers.push_back({r, true, const_cast<void*>(own), share_bytes});
    transfers.push_back({r, false, part, share_bytes});
  }
  exchange(queue, index, transfers);
}

void Collectives::all_to_all(Queue& queue, int index, void* from, void* to,
                             std::size_t part_bytes) const {
  const auto part = [&](void* base, int r) {
    return static_cast<std::byte*>(base) + static_cast<std::size_t>(r) * part_bytes;
  };
  const int me = transport_->rank();
  std::vector<Transfer> transfers;
  for (int r = 0; r < transport_->size(); ++r) {
    if (r == me) continue;
    transfers.push_back({r, true, part(from, r), part_bytes});
    transfers.push_back({r, false, part(to, r), part_bytes});
  }
  exchange(queue, index, transfers);
  detail::overlapping_copy(queue, part(to, me), part(from, me), part_bytes);
}

void Collectives::broadcast(Queue& queue, int index, void* data, std::size_t bytes,
                            int root) const {
  std::vector<Transfer> transfers;
  for (int r = 0; r < transport_->size(); ++r)
    if (r != root && transport_->rank() == root) transfers.push_back({r, true, data, bytes});
  if (transport_->rank() != root) transfers.push_back({root, false, data, bytes});
  exchange(queue, index, transfers);
}

void Collectives::exchange(Queue& queue, int index, std::span<const Transfer> transfers) const {
  transport_->begin(queue, index);
  transport_->move(queue, transfers);
  if (transfers.empty()) transport_->move(queue, {});  // where the others meet at their end
  transport_->end(queue);
}

void sum_rows(Queue& queue, const void* others, const void* own, void* sums, std::int64_t count,
              Dtype dtype, int rank, int ranks) {
  with_types(dtype, dtype, [&]<class Out, class Wire, class A>() {
    execution::parallel_for(
        queue, count,
        detail::RankOrderReduce<Out, Wire, A>{
            static_cast<const Wire*>(others), count, static_cast<const Wire*>(own),
            static_cast<Out*>(sums), rank, ranks, Reduction::sum});
  });
}

}  // namespace stowage::parallel
