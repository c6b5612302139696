# shellcheck shell=bash
# What every batch job shares: how ranks are started, what a signal does, when a job goes back into
# the queue. Sourced by the *.sbatch files; Slurm runs a copy of those, so they find this file by
# STOWAGE_SOURCE, or by the folder that sbatch was called in.
#
#   STOWAGE_SOURCE    the checkout ($SLURM_SUBMIT_DIR)
#   STOWAGE_BIN       the programs ($STOWAGE_SOURCE/build/cuda/bin)
#   STOWAGE_LAUNCHER  srun or mpirun (srun)
#   STOWAGE_MPI       srun's way to start MPI (pmix)
#   STOWAGE_REQUEUE   yes or no: whether a job that was stopped goes back into the queue (yes)
#   STOWAGE_ENV       a file that is sourced first: modules, paths of libraries

# shellcheck source=/dev/null
[ -z "${STOWAGE_ENV:-}" ] || source "$STOWAGE_ENV"
STOWAGE_BIN=${STOWAGE_BIN:-$STOWAGE_SOURCE/build/cuda/bin}

job_die() {
  echo "error: $*" >&2
  exit 3
}

# program NAME: its path.
program() {
  [ -x "$STOWAGE_BIN/$1" ] || job_die "no $1 in $STOWAGE_BIN: set STOWAGE_BIN to the programs"
  echo "$STOWAGE_BIN/$1"
}

# Every setting can be overridden from outside.
set_environment() {
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}
  export OMP_PLACES=${OMP_PLACES:-cores} OMP_PROC_BIND=${OMP_PROC_BIND:-close}
  export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
  # MPI moves host memory only: no CUDA in UCX, whose probing costs time and GPU memory.
  export UCX_TLS=${UCX_TLS:-^cuda,gdr_copy} UCX_WARN_UNUSED_ENV_VARS=${UCX_WARN_UNUSED_ENV_VARS:-n}
  # A fault is told once; the library finds the network interfaces and the topology by itself.
  export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
}

# launcher: the words in front of the program, one a line. One rank a GPU; every rank sees all GPUs
# of its node and takes that of its own number: binding GPUs to tasks would hide the peers, and with
# them NVLink.
launcher() {
  local tasks=${SLURM_NTASKS_PER_NODE:-$((SLURM_NTASKS / SLURM_JOB_NUM_NODES))}
  case ${STOWAGE_LAUNCHER:-srun} in
    srun)
      printf '%s\n' srun "--mpi=${STOWAGE_MPI:-pmix}" "--cpus-per-task=${SLURM_CPUS_PER_TASK:-1}" \
        --cpu-bind=cores --gpu-bind=none --kill-on-bad-exit=1
      ;;
    mpirun)
      printf '%s\n' mpirun -np "$SLURM_NTASKS" \
        --map-by "ppr:$tasks:node:PE=${SLURM_CPUS_PER_TASK:-1}" --bind-to core
      [ "$(id -u)" -ne 0 ] || echo --allow-run-as-root
      ;;
    *) job_die "STOWAGE_LAUNCHER=$STOWAGE_LAUNCHER: allowed are srun and mpirun" ;;
  esac
}

# run_job COMMAND...: runs it on the ranks of the job, and ends the job with its exit code. SIGUSR1,
# which Slurm sends before the time is over (--signal=B:USR1@...), and SIGTERM, by which it
# preempts, are handed on: the program saves what it has and ends with 75. The job is then put back
# into the queue, and continues where it stopped.
run_job() {
  local words pid code heard
  mapfile -t words < <(launcher)
  [ "${#words[@]}" -gt 0 ] || exit 3
  set_environment
  echo "# job ${SLURM_JOB_ID}, restart ${SLURM_RESTART_COUNT:-0}: ${words[*]} $*"
  "${words[@]}" "$@" &
  pid=$!
  trap 'heard=yes; kill -USR1 "$pid" 2>/dev/null' USR1 TERM
  heard=yes
  while [ "$heard" = yes ]; do  # a signal ends `wait`, not the program
    heard=no
    code=0
    wait "$pid" || code=$?
  done
  trap - USR1 TERM
  if [ "$code" -eq 75 ] && [ "${STOWAGE_REQUEUE:-yes}" = yes ]; then
    echo "# job ${SLURM_JOB_ID}: stopped after saving, goes back into the queue"
    scontrol requeue "$SLURM_JOB_ID" || echo "# it was not requeued: submit it again to go on" >&2
  fi
  exit "$code"
}
