#pragma once

namespace stowage::parallel {

/// True if the environment is that of a process which mpirun, srun (PMIx, PMI2), PALS or hydra
/// started.
bool started_by_launcher();

/// Tells Open MPI that a program which no launcher started stays alone; called before MPI_Init.
/// Other libraries ignore the variables that are set, and a user's own settings are kept.
///
/// No daemon: Open MPI 4 starts one beside such a program to serve MPI_Comm_spawn, which nothing
/// here calls. It doubles the time of a start, and outlives a program whose standard streams are
/// closed. Open MPI 5 starts one in MPI_Comm_spawn only.
///
/// No folder: without a daemon all such programs of a user have one session folder below TMPDIR,
/// and one that starts as another ends does not find it. One rank keeps nothing there.
///
/// No network: one rank sends to itself alone. Loading the library of a network takes time even
/// where there is none: PSM2's calibrates its clock for 0.2 s.
void start_alone();

}  // namespace stowage::parallel
