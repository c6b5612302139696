#pragma once

#include <memory>
#include <string>
#include <vector>

#include "execution/backend.hpp"
#include "forecast/plan/trainer_plan.hpp"
#include "inputs/deck/deck.hpp"
#include "layers/step/step.hpp"
#include "parallel/job/mpi.hpp"
#include "parallel/proof/joint_proof.hpp"
#include "results/provenance.hpp"
#include "results/result_set.hpp"

namespace stowage::run {

class GpuMonitor;

/// What a GPU's board says of itself at one moment; NaN where it does not.
struct BoardReading {
  double clock_hz = 0;  ///< of the multiprocessors
  double power_w = 0;   ///< over some ten milliseconds
  double temperature_c = 0;
};

/// What this rank computes on: its backend, and the way to the other ranks.
class Machine {
 public:
  /// Collective. Takes the backend that the deck asks for. On a GPU machine rank r of a host gets
  /// the host's r-th GPU, or the only one that the launcher shows it. With execution.backend = auto
  /// a program built for GPUs says on stderr if no rank has one, and computes on the host.
  /// @throws Error (exit 3) if the deck asks for cuda and there is no GPU for every rank, no
  /// driver, or one too old; with auto, if some ranks have a GPU and some have none; (exit 2) if
  /// the deck asks for what the backend cannot do
  Machine(const inputs::Deck& deck, const parallel::Communicator& world);

  execution::Backend& backend() { return *backend_; }
  bool has_gpu() const { return backend_->name() == "cuda"; }
  /// On GPUs the communication of a rank follows each other as issued.
  parallel::RankOrder rank_order() const;
  /// This rank's host and GPU.
  const results::RankInfo& rank_info() const { return rank_info_; }
  /// Versions of libraries that only this class knows.
  const results::Fields& software() const { return software_; }
  /// What libraries were made to use up to now: algorithms of products, NCCL's pinned choices.
  std::vector<results::Choice> choices(const inputs::Deck& deck) const;
  /// Device memory that the collectives' library took, in bytes.
  std::int64_t collectives_bytes() const { return collectives_bytes_; }

  /// Sets up what libraries keep for a compute queue, so that no step allocates it.
  void prepare(execution::Queue& queue) const;

  /// Device memory in use beside `ours` and the collectives': context, code, other libraries. 0
  /// without a GPU.
  std::int64_t driver_bytes(std::int64_t ours) const;
  /// This rank's GPU, which there must be.
  BoardReading board() const;
  /// Energy that this rank's GPU has used up to now; NaN if nobody says.
  double energy_j() const;

  /// Collective. This rank's place in the grid that the deck asks for, with the way to the others.
  parallel::Ranks connect(const inputs::Deck& deck, const parallel::Communicator& world);

  /// Device memory that is free beside a plan and what libraries may need; that of the host, if
  /// there is no GPU.
  std::size_t memory_left(const forecast::TrainerPlan& plan) const;
  /// Refuses a plan that does not fit, before anything is allocated or launched.
  /// @param copy bytes of a copy of the state in device memory
  /// @throws Error (exit 3) with the bytes needed per class and those that are free
  void require_memory(const forecast::TrainerPlan& plan, std::size_t copy = 0) const;

 private:
  void open_gpu(const parallel::Communicator& world, bool required);

  std::unique_ptr<execution::Backend> backend_;
  int device_ = 0;
  std::shared_ptr<const GpuMonitor> monitor_;  ///< of the GPU, if there is one
  results::RankInfo rank_info_;
  results::Fields software_;
  std::int64_t collectives_bytes_ = 0;
};

/// Collective. Host and GPU of every rank in rank order, on rank 0; empty elsewhere.
std::vector<results::RankInfo> gather_ranks(const parallel::Communicator& world,
                                            const Machine& machine);

}  // namespace stowage::run
