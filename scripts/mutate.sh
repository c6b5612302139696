#!/usr/bin/env bash
# mutate.sh: changes one line at a time in the product's sources, lists what no test notices.
#
#   scripts/mutate.sh                      mutants of all host sources, tools and scripts
#   scripts/mutate.sh --files PATH...      of these files, or of all files in these folders
#   scripts/mutate.sh --changed [COMMIT]   of the files that differ from COMMIT (HEAD)
#   --count N     mutants that count (20); those that do not compile or give equal code do not
#   --seed S      of the drawing; a random one is printed
#   --limit S     of tests for one mutant (120), with the time to link them
#   --timeout S   for one group of tests (300)
#   --log FILE    adds outcomes to it as JSON lines; what it has is not tried again
#   --again       only what survived by the log, since tests were added
#   scripts/mutate.sh --table FILE         counts by folder of such a log, as a page has them
#
# Builds in build/mutate, a work tree of its own with what yours has now. Of a C++ source only the
# programs that link its object are tried: those first whose test lies near by the graph of includes
# and is quick, whole programs and golden texts last. Tests of a tool run one by one, quick first.
# build/mutate_times.json has the times. Programs are linked by lld where there is one.
# Exits with 1 if a mutant survives that scripts/mutate_equivalent.txt does not judge.
# build/mutate.log has what every command said.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/common.sh

case ${1:-} in
  -h | --help) sed -n '2,20s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
esac

tool=universalmutator==1.14.1
venv=$STOWAGE_CACHE/${tool/==/-}
if ! "$venv/bin/python" -c 'import universalmutator.mutator' 2>/dev/null; then
  say "Installing $tool"
  python3 -m venv "$venv" || die "a virtual environment needs the package python3-venv"
  "$venv/bin/pip" install --quiet --no-deps "$tool" || die "$tool could not be installed"
fi

mkdir -p build
exec {lock}>build/mutate.lock
flock -n "$lock" || die "another mutation run works in build/mutate"
! have ld.lld || export LDFLAGS="${LDFLAGS:-} -fuse-ld=lld"  # half the time to link; CMake keeps it
"$venv/bin/python" scripts/lib/mutate.py --jobs "$(jobs_for_build)" "$@"
