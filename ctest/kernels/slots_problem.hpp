#pragma once

#include <fmt/core.h>

#include <array>
#include <string>
#include <vector>

#include "ctest/kernels/operator_arrays.hpp"
#include "kernels/moe/capacity.hpp"
#include "kernels/moe/slots.hpp"
#include "kernels/shards/shards.hpp"

namespace stowage::kernels::test {

/// Choices of W ranks, each of n rows, and so many slots for each pair of ranks.
struct SlotsProblem {
  std::int64_t ranks, n, topk, experts, slots;
  std::vector<Array> indices;  ///< of each rank, (n, R)
  Array all;                   ///< of all, (W n, R)
  Array token_row;             ///< (W n, R), any numbers: they are only carried

  std::int64_t share() const { return experts / ranks; }
  std::string text() const {
    return fmt::format("{} ranks, {} rows, {} of {} experts, {} slots", ranks, n, topk, experts,
                       slots);
  }

  struct Sent {
    Array row_slot, wanted;
  };
  Sent make_sent() const { return {Array(Dtype::int32, {n, ranks}), Array(Dtype::int32, {ranks})}; }
  Array make_received() const { return {Dtype::int32, {ranks * slots, topk}}; }

  SendSlots sends() const {
    return {.rows = n, .topk = topk, .ranks = ranks, .share = share(), .slots = slots};
  }
  ReceiveSlots receives() const {
    return {.rows = n, .topk = topk, .ranks = ranks, .slots = slots};
  }

  Sent send(std::int64_t rank) const {
    Sent sent = make_sent();
    run(sends(), {.indices = indices[rank], .row_slot = sent.row_slot, .wanted = sent.wanted});
    return sent;
  }
  /// Choices of this rank's experts.
  Array local(std::int64_t rank) const {
    const Array own(Dtype::int32, {ranks * n, topk});
    run(Localise{ranks * n * topk, rank * share(), share()}, {.ids = all, .local = own});
    return own;
  }
  Array receive(std::int64_t rank) const {
    const Array here = local(rank), received = make_received();
    run(receives(), {.local = here, .token_row = token_row, .slot_row = received});
    return received;
  }
};

/// Different experts for each row, neighbours of a random one, so that some lie on one rank; none
/// for the last rows of a rank, as for a tail.
inline SlotsProblem slots_problem(Random& random, std::int64_t ranks, std::int64_t n,
                                  std::int64_t topk, std::int64_t experts, std::int64_t slots) {
  SlotsProblem p{ranks, n, topk, experts, slots, {}, {}, {}};
  Values all, rows;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    Values own;
    for (std::int64_t row = 0; row < n; ++row) {
      const std::int64_t first = random.integer(0, experts - 1);
      const bool tail = row + rank >= n;
      for (std::int64_t r = 0; r < topk; ++r)
        own.push_back(tail ? -1.0 : static_cast<double>((first + 2 * r) % experts));
    }
    p.indices.emplace_back(Dtype::int32, std::vector<std::int64_t>{n, topk}, own);
    all.insert(all.end(), own.begin(), own.end());
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    rows.push_back(static_cast<double>(random.integer(-1, 1 << 20)));
  p.all = Array(Dtype::int32, {ranks * n, topk}, all);
  p.token_row = Array(Dtype::int32, {ranks * n, topk}, rows);
  return p;
}

/// Of few and of many rows, with slots for all and for some, one, or none of them.
inline std::vector<SlotsProblem> slots_problems(Random& random) {
  std::vector<SlotsProblem> problems;
  for (const auto& [ranks, n, topk, experts] : {std::array<std::int64_t, 4>{2, 1, 1, 2},
                                                {2, 40, 3, 9 * 2},
                                                {4, 65, 2, 8},
                                                {8, 33, 6, 128},
                                                {3, 2050, 4, 12}})
    for (const std::int64_t slots : {n, n / 2, std::int64_t{1}, std::int64_t{0}})
      problems.push_back(slots_problem(random, ranks, n, topk, experts, slots));
  return problems;
}

}  // namespace stowage::kernels::test
