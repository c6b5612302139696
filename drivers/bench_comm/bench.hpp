#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "drivers/bench_comm/check.hpp"
#include "drivers/bench_comm/exchange.hpp"
#include "drivers/bench_comm/neighbour.hpp"
#include "drivers/bench_comm/options.hpp"
#include "inputs/deck/deck.hpp"
#include "parallel/job/mpi.hpp"
#include "run/machine/machine.hpp"

namespace stowage::drivers {

/// What one collective of one library showed at one size.
struct CommRow {
  std::string group;
  int ranks;  ///< of the group
  Kind kind;
  std::string library, version, algorithm;
  bool in_place;
  std::size_t size;                 ///< asked for
  std::size_t bytes;                ///< what is left of it: whole elements in every rank's share
  std::int64_t count;               ///< NCCL's argument
  int calls;                        ///< of a sample
  bool graph;                       ///< these as one
  std::string overlapping;          ///< what the GPU did meanwhile
  std::int64_t wrong;               ///< elements, on all ranks
  std::vector<double> rank_time_s;  ///< (samples, ranks of the job), of one call; on rank 0
  std::vector<double> time_s;       ///< on the slowest rank; on rank 0
};

/// Checks and times the collectives of every group of the deck's process grid: all groups of one
/// name at once, as in training.
class BenchComm {
 public:
  /// Collective over `world`, as all calls. Allocates what the largest size needs.
  /// @throws Error (exit 2) for sizes that cannot be, (exit 3) on one rank, or without the memory
  BenchComm(const parallel::Communicator& world, const inputs::Deck& deck,
            const CommOptions& options, run::Machine& machine);
  BenchComm(const BenchComm&) = delete;
  BenchComm& operator=(const BenchComm&) = delete;

  /// Groups of several ranks, by their first names.
  std::size_t groups() const { return groups_.size(); }
  /// What goes on in one group: ready to run until the next call.
  void open(std::size_t group);
  /// All sizes and libraries of one kind in the open group.
  std::vector<CommRow> run(Kind kind);
  /// Gives back what other ranks map of this one's memory. Nothing runs afterwards.
  void close();

 private:
  std::vector<CommRow> run(Kind kind, std::size_t size);

  const parallel::Communicator& world_;
  const inputs::Deck& deck_;
  const CommOptions& options_;
  execution::Backend& backend_;
  std::vector<std::size_t> sizes_;
  parallel::Ranks ranks_;
  std::vector<std::shared_ptr<const parallel::RankGroup>> groups_;
  std::unique_ptr<execution::Arena> arena_;
  std::byte *from_, *to_, *workspace_;
  std::unique_ptr<execution::Queue> queue_;
  std::unique_ptr<Neighbour> overlapping_;
  Checker checker_;
  const parallel::RankGroup* group_ = nullptr;
  std::vector<Exchange> exchanges_;
};

}  // namespace stowage::drivers
