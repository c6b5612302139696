#!/usr/bin/env bash
# chain.sh: submits a run as several jobs in a row, for sites that do not put jobs back into the
# queue. Each begins when the one before it has ended without finishing; once a run is finished,
# the jobs that are left of it are cancelled by Slurm. Where one fails for good, by its deck or its
# environment, the next ones end at once.
#
#   scripts/slurm/chain.sh COUNT NAME [sbatch options] SCRIPT.sbatch [arguments]
#   scripts/slurm/chain.sh 5 moe --nodes=4 many_nodes.sbatch inputs/hybrid-moe-2b.toml
#
# Prints the numbers of the jobs, one a line. Each is submitted by submit.sh.
set -euo pipefail

case ${1:-} in
  -h | --help) sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
esac
if [ $# -lt 3 ] || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: chain.sh COUNT NAME [sbatch options] SCRIPT.sbatch [arguments]" >&2
  exit 2
fi
count=$1 name=$2
shift 2
export STOWAGE_REQUEUE=no
unset STOWAGE_AFTER
after=()
for ((i = 0; i < count; ++i)); do
  job=$("$(dirname "${BASH_SOURCE[0]}")/submit.sh" --job-name="$name" "${after[@]}" \
    --kill-on-invalid-dep=yes "$@")
  echo "$job"
  after=("--dependency=afternotok:$job")
  export STOWAGE_AFTER=$job
done
