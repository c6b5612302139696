#!/usr/bin/env bash
# publish_gpu.sh OUT [OPTION...]: measures everything that is published, on GPUs, from a build of a
# committed state, and leaves one result set for each line of a list in the folder OUT.
#
#   --bin FOLDER    where the programs lie (build/device/bin)
#   --list FILE     what to run (results/published/h200/commands.txt)
#   --only REGEX    the sets whose names match, alone (ceilings come from OUT then)
#   --ranks N       the lines for N GPUs, one rank each (1); 0: those that need none
#   --with WORDS    put behind the words of every command: overrides of keys, for a trial
#   --seconds S     begin nothing after S seconds (480)
#   --dry-run       print the commands
#
# A command that fails is reported, and the others run. Exit code 1 if any failed or was left out.
# Afterwards, where h5py is: results/tools/publish.py --to results/published/h200 OUT/*.h5
#   results/tools/table.py --into results/published/h200/README.md --short-into README.md \
#     results/published/h200/*.h5
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

usage() { sed -n '2,17s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
die() { echo "error: $*" >&2; exit "${code:-2}"; }

out='' bin=$source/build/device/bin list=$source/results/published/h200/commands.txt
only=. ranks=1 seconds=480 dry=0 more=''
while [ $# -gt 0 ]; do
  case $1 in
    --bin | --list | --only | --ranks | --seconds | --with)
      [ $# -ge 2 ] || die "$1 needs a value" ;;
  esac
  case $1 in
    -h | --help) usage && exit 0 ;;
    --bin) bin=$2 && shift ;;
    --list) list=$2 && shift ;;
    --only) only=$2 && shift ;;
    --ranks) ranks=$2 && shift ;;
    --seconds) seconds=$2 && shift ;;
    --with) more=$2 && shift ;;
    --dry-run) dry=1 ;;
    -*) die "unknown option $1; --help lists them" ;;
    *) out=$1 ;;
  esac
  shift
done
[ -n "$out" ] || die "where to? publish_gpu.sh OUT"
[ -f "$list" ] || die "no list $list"
[ "$dry" -eq 1 ] || [ -x "$bin/stowage_train" ] || code=3 die "no programs in $bin"
mkdir -p "$out"
out=$(cd "$out" && pwd)
bin=$(cd "$bin" 2>/dev/null && pwd || echo "$bin")

# The text of the quick start (scripts/quickstart.sh), by the name that its deck has.
[ ! -d "$source/data" ] || ln -sfn "$source/data" "$out/data"

# One rank is started as it is; several get cores of their own, without which ranks differ.
launch() {
  local program=$1
  shift
  if [ "$ranks" -le 1 ]; then
    "$program" "$@"
  else
    local cores
    cores=$(($(env -u OMP_NUM_THREADS nproc) / ranks))
    mpirun -np "$ranks" --map-by "slot:PE=$((cores > 0 ? cores : 1))" --bind-to core "$program" "$@"
  fi
}

failed=0 left=0
while read -r wanted name program arguments; do
  [[ -n ${wanted:-} && $wanted != \#* ]] || continue
  [[ $wanted == "$ranks" && $name =~ $only ]] || continue
  arguments=${arguments//\{set\}/$name.h5}  # relative: a set holds its deck's paths
  arguments=${arguments//\{decks\}/$source/inputs}
  read -ra words <<<"$arguments $more"
  if [ "$dry" -eq 1 ]; then
    echo "$program ${words[*]}"
    continue
  fi
  if [ "$SECONDS" -ge "$seconds" ]; then
    echo "$name: left out, $seconds s are over"
    left=$((left + 1))
    continue
  fi
  start=$SECONDS rc=0
  (cd "$out" && launch "$bin/$program" "${words[@]}" >"$name.log" 2>&1 </dev/null) || rc=$?
  [ "$rc" -eq 0 ] || failed=$((failed + 1))
  echo "$name: code $rc, $((SECONDS - start)) s; $(tail -n 1 "$out/$name.log")"
done <"$list"
echo "$failed failed, $left left out, $SECONDS s in all"
[ "$failed" -eq 0 ] && [ "$left" -eq 0 ]
