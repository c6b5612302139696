#include "parallel/job/launcher.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

namespace stowage::parallel {

bool started_by_launcher() {
  static constexpr std::array kNames = {
      "OMPI_COMM_WORLD_SIZE",  // Open MPI's mpirun
      "PMIX_NAMESPACE",        // any launcher with PMIx: prterun, srun --mpi=pmix, PALS, Flux
      "PMI_RANK",              // PMI1 and PMI2: srun --mpi=pmi2, hydra, PALS
      "PMI_FD",                // the same, where the rank is asked for through the descriptor
      "PMI_CONTROL_PORT",      // Cray
      "PALS_RANKID",           // PALS without PMI
      "ALPS_APP_PE",           // aprun
  };
  // PMI1 of Slurm says nothing else. One task is alone, as in a shell of `srun --pty`.
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  if (tasks != nullptr && std::string_view(tasks) != "1") return true;
  return std::ranges::any_of(kNames, [](const char* name) { return std::getenv(name) != nullptr; });
}

void start_alone() {
  if (started_by_launcher()) return;
  ::setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
  ::setenv("OMPI_MCA_orte_create_session_dirs", "0", 0);
  ::setenv("OMPI_MCA_pml", "ob1", 0);   // messages without a network's library
  ::setenv("OMPI_MCA_btl", "self", 0);  // ob1's way from a rank to itself
}

}  // namespace stowage::parallel
