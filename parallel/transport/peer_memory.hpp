#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "parallel/groups/transport.hpp"
#include "parallel/job/mpi.hpp"
#include "parallel/transport/peer_barrier.hpp"

namespace stowage::parallel {

/// A move of a collective: which one, which run or rerun of it (Queue::issue), its moves before.
struct PeerCall {
  int collective, issue, move;
  auto operator<=>(const PeerCall&) const = default;
};

/// The device memory of the ranks of one group, mapped into each other's address space (CUDA IPC),
/// and moves by copy engines: compute keeps all SMs, where NCCL's kernels take some for as long as
/// bytes travel. Between GPUs of one host that reach each other.
class PeerMemory {
 public:
  /// Collective. Maps `arena` of all ranks, a part of one allocation.
  /// @throws Error for a failed call
  PeerMemory(const Communicator& ranks, std::span<std::byte> arena);
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  ~PeerMemory();

  /// Collective. True if every rank's GPU can reach all the others'.
  static bool reachable(const Communicator& ranks);

  /// Enqueues transfers within the arenas: once all ranks have come, each fetches what it receives.
  /// What it sends is read until the next meeting. The first time that a call is made, ranks tell
  /// each other where its bytes lie; later ones, and replays of a graph that holds it, ask nobody.
  /// A rank begins with the one behind it and goes round: no two fetch from the same at once.
  /// @param call names this call of move: the same on all ranks, with the same addresses each time
  void move(const PeerCall& call, std::span<const Transfer> transfers, const ProgressNote& note,
            cudaStream_t stream);
  /// All ranks have come: what was moved before has arrived everywhere.
  void meet(const ProgressNote& note, cudaStream_t stream) const;

 private:
  struct Mapped;  ///< what a rank tells of its memory

  /// What ranks told each other of a call.
  struct Told {
    std::vector<std::byte*> sources;  ///< of each receive
    std::vector<const void*> sent;    ///< by this rank
  };

  const std::vector<std::byte*>& sources(const PeerCall& call, std::span<const Transfer> transfers);
  int distance(int peer) const;  ///< how many ranks on, going round

  Communicator ranks_;
  std::byte* base_;
  std::uint64_t* flags_ = nullptr;  ///< by rank; behind them, the count of meetings
  std::vector<void*> opened_;
  std::vector<std::byte*> bases_;  ///< by rank: its arena
  PeerFlags meeting_;
  std::map<PeerCall, Told> told_;
};

}  // namespace stowage::parallel
