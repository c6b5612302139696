# shellcheck shell=bash
# What every batch job shares: how ranks are started, what a signal does, when a job goes back into
# the queue. Sourced by the *.sbatch files and by submit.sh.
#
#   STOWAGE_SOURCE    the checkout (that of the *.sbatch that was submitted)
#   STOWAGE_BIN       the programs (build/cuda/bin of the checkout; bin of installed scripts)
#   STOWAGE_LAUNCHER  srun or mpirun (srun)
#   STOWAGE_MPI       srun's way to start MPI (pmix)
#   STOWAGE_REQUEUE   yes or no: whether a job that was stopped goes back into the queue (yes)
#   STOWAGE_SIGNAL_S  the N of --signal=B:USR1@N; 0: the job has no such signal (180)
#   STOWAGE_RANK_LOGS yes or no: whether what rank R says is also kept in NAME.ranks/R.log (no)
#   STOWAGE_AFTER     the job that this one follows in a chain: it must not have failed for good
#   STOWAGE_ENV       a file that is sourced first: modules, paths of libraries

# Ends the job. Never called in $(...) or <(...): `exit` would end that subshell only.
job_die() {
  echo "error: $*" >&2
  exit 3
}

if [ -n "${STOWAGE_ENV:-}" ]; then
  [ -r "$STOWAGE_ENV" ] || job_die "STOWAGE_ENV=$STOWAGE_ENV: no such file"
  # shellcheck source=/dev/null
  source "$STOWAGE_ENV"
fi
if [ -z "${STOWAGE_BIN:-}" ]; then
  STOWAGE_BIN=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
  case $STOWAGE_BIN in
    */share/stowage/slurm) STOWAGE_BIN=${STOWAGE_BIN%/share/stowage/slurm}/bin ;;
    *) STOWAGE_BIN=${STOWAGE_BIN%/scripts/slurm}/build/cuda/bin ;;
  esac
fi

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

# set_launcher: the array `launcher` holds the words in front of the program. One rank a GPU; every
# rank sees all GPUs of its node and takes that of its own number: binding GPUs to tasks would hide
# the peers, and with them NVLink. When a rank has ended the others have a minute to end by
# themselves: a rank that srun ends at once has another exit code, which would be the job's.
set_launcher() {
  local tasks=${SLURM_NTASKS_PER_NODE:-$((SLURM_NTASKS / SLURM_JOB_NUM_NODES))}
  case ${STOWAGE_LAUNCHER:-srun} in
    srun)
      launcher=(srun "--mpi=${STOWAGE_MPI:-pmix}" "--cpus-per-task=${SLURM_CPUS_PER_TASK:-1}"
        --cpu-bind=cores --gpu-bind=none --kill-on-bad-exit=0 --wait=60)
      [ "${STOWAGE_RANK_LOGS:-no}" != yes ] || launcher+=(--label)
      ;;
    mpirun)
      launcher=(mpirun -np "$SLURM_NTASKS"
        --map-by "ppr:$tasks:node:PE=${SLURM_CPUS_PER_TASK:-1}" --bind-to core)
      [ "$EUID" -ne 0 ] || launcher+=(--allow-run-as-root)
      [ "${STOWAGE_RANK_LOGS:-no}" != yes ] || launcher+=(--tag-output)
      ;;
    *) job_die "STOWAGE_LAUNCHER=$STOWAGE_LAUNCHER: allowed are srun and mpirun" ;;
  esac
}

# job_fact NAME [JOB]: what `scontrol show job` says of a job, of this one if no other is named:
# JobState, TimeLimit. Empty if nothing.
job_fact() {
  scontrol -o show job "${2:-$SLURM_JOB_ID}" 2>/dev/null | grep -o "\<$1=[^ ]*" | head -n 1 |
    cut -d= -f2 || true
}

# The signal must come when the program has had some time.
require_time() {
  local limit signal_s=${STOWAGE_SIGNAL_S:-180} seconds
  limit=$(job_fact TimeLimit)  # [days-]hours:minutes:seconds
  [[ $limit =~ ^(([0-9]+)-)?([0-9]+):([0-9]+):([0-9]+)$ ]] || return 0
  seconds=$((((10#${BASH_REMATCH[2]:-0} * 24 + 10#${BASH_REMATCH[3]}) * 60 +
    10#${BASH_REMATCH[4]}) * 60 + 10#${BASH_REMATCH[5]}))
  [ "$signal_s" -eq 0 ] || [ "$seconds" -gt "$signal_s" ] ||
    job_die "time limit $limit: the job is told to save $signal_s s before its end, so it would" \
      "end as it begins; give a longer --time, or --signal=B:USR1@N with STOWAGE_SIGNAL_S=N"
}

# A chain goes on where a job was stopped, not where a deck or the environment is wrong.
require_worth() {
  local code
  [ -n "${STOWAGE_AFTER:-}" ] || return 0
  code=$(job_fact ExitCode "$STOWAGE_AFTER")
  case $code in
    [123]:0)
      echo "error: job $STOWAGE_AFTER ended with ${code%:0}, and so would this one" >&2
      exit "${code%:0}"
      ;;
  esac
}

# split_ranks: passes on what ranks say, without the rank's number that srun or mpirun has put in
# front of each line, and adds it to the rank's own log. Signals end the ranks first.
split_ranks() {
  local line folder=$SLURM_JOB_NAME.ranks
  trap '' USR1 TERM
  mkdir -p "$folder"
  while IFS= read -r line || [ -n "$line" ]; do
    if [[ $line =~ ^\ *([0-9]+):\ (.*)$ || $line =~ ^\[[^],]*,([0-9]+)\]\<std...\>:(.*)$ ]]; then
      line=${BASH_REMATCH[2]}
      printf '%s\n' "$line" >>"$folder/$((10#${BASH_REMATCH[1]})).log"
    fi
    printf '%s\n' "$line"
  done
}

# run_job PROGRAM ARGUMENTS...: runs it on the ranks of the job, and ends the job with its exit
# code. SIGUSR1, which Slurm sends before the time is over (--signal=B:USR1@...), and SIGTERM, by
# which it preempts and cancels, are handed on: the program saves what it has and ends with 75.
# The job is then put back into the queue, and continues where it stopped; but not if Slurm ended it
# (it is no longer RUNNING) for another reason than its time limit: scancel, which is obeyed, or a
# preemption that has requeued it already.
run_job() {
  local program=$STOWAGE_BIN/$1 launcher pid code heard log splitter=
  [ -x "$program" ] || job_die "no $1 in $STOWAGE_BIN: set STOWAGE_BIN to the programs"
  set_launcher
  require_worth
  require_time
  set_environment
  echo "# job ${SLURM_JOB_ID}, restart ${SLURM_RESTART_COUNT:-0}: ${launcher[*]} $program ${*:2}"
  if [ "${STOWAGE_RANK_LOGS:-no}" = yes ]; then
    exec {log}> >(split_ranks)
    splitter=$!
    "${launcher[@]}" "$program" "${@:2}" >&"$log" 2>&1 &
  else
    "${launcher[@]}" "$program" "${@:2}" &
  fi
  pid=$!
  trap 'heard=yes; kill -USR1 "$pid" 2>/dev/null' USR1 TERM
  heard=yes
  while [ "$heard" = yes ]; do  # a signal ends `wait`, not the program
    heard=no
    code=0
    wait "$pid" || code=$?
  done
  trap - USR1 TERM
  if [ -n "$splitter" ]; then
    exec {log}>&-
    wait "$splitter" || true
  fi
  [ "$code" -ne 75 ] || stopped
  exit "$code"
}

# What becomes of a job whose program has saved and stopped.
stopped() {
  if [ "${STOWAGE_REQUEUE:-yes}" != yes ]; then
    echo "# job ${SLURM_JOB_ID}: stopped after saving; submitted again it goes on"
  elif [ "$(job_fact JobState)" = RUNNING ] || [ "$(job_fact Reason)" = TimeLimit ]; then
    echo "# job ${SLURM_JOB_ID}: stopped after saving, goes back into the queue"
    scontrol requeue "$SLURM_JOB_ID" || echo "# it was not requeued: submit it again to go on" >&2
  elif [ "$(job_fact Restarts)" != "${SLURM_RESTART_COUNT:-0}" ]; then
    echo "# job ${SLURM_JOB_ID}: stopped after saving, Slurm has put it back into the queue"
  else
    echo "# job ${SLURM_JOB_ID}: stopped after saving, ended by Slurm; submitted again it goes on"
  fi
}
