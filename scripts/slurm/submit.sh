#!/usr/bin/env bash
# submit.sh: sbatch, from any folder, for the batch scripts beside this file. What a job would
# refuse when it begins is refused at once: programs that are not there, a time limit that leaves
# nothing before the signal to save.
#
#   scripts/slurm/submit.sh [sbatch options] SCRIPT.sbatch [arguments]
#   scripts/slurm/submit.sh -J run7 --nodes=4 many_nodes.sbatch DECK parallel.tensor=8
#
# Prints the number of the job. The N of an option --signal=B:USR1@N is told to the job.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/slurm/job.sh
source "$here/job.sh"

case ${1:-} in
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
esac
words=() script=
for word in "$@"; do
  if [ -z "$script" ] && [[ $word == *.sbatch ]]; then
    script=$word
    [ -e "$script" ] || script=$here/$word
    word=$script
  elif [ -z "$script" ] && [[ $word =~ ^--signal=.*@([0-9]+)$ ]]; then
    export STOWAGE_SIGNAL_S=${BASH_REMATCH[1]}
  fi
  words+=("$word")
done
if [ -z "$script" ] || [ ! -r "$script" ]; then
  echo "usage: submit.sh [sbatch options] SCRIPT.sbatch [arguments]" >&2
  exit 2
fi
[ -x "$STOWAGE_BIN/stowage_train" ] ||
  job_die "no stowage_train in $STOWAGE_BIN: set STOWAGE_BIN to the programs"
grep -q '^#SBATCH --signal=' "$script" || STOWAGE_SIGNAL_S=0
# Only Slurm knows the limit that options, script and partition give a job: it is asked of a job
# that may not begin yet.
SLURM_JOB_ID=$(sbatch --hold --parsable "${words[@]}")
SLURM_JOB_ID=${SLURM_JOB_ID%%;*}
(require_time) || {
  scancel "$SLURM_JOB_ID"
  exit 3
}
scontrol release "$SLURM_JOB_ID"
echo "$SLURM_JOB_ID"
