#!/usr/bin/env bash
# by_rank.sh FIRST COMMAND... else COMMAND...: started by mpirun, runs the first command on ranks
# below FIRST and the second one on the others. (mpirun of Open MPI 5.0.7 crashes on two commands,
# and takes any `:` for the end of one.)
set -eu
first=$1
shift
if [ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}" -lt "$first" ]; then
  command=()
  while [ "$1" != else ]; do
    command+=("$1")
    shift
  done
  exec "${command[@]}"
fi
while [ "$1" != else ]; do shift; done
shift
exec "$@"
