#!/usr/bin/env bash
# mutate.sh: changes one line at a time in the product's sources, lists what no test notices.
#
#   scripts/mutate.sh                      mutants of all host sources, tools and scripts
#   scripts/mutate.sh --files PATH...      of these files, or of all files in these folders
#   scripts/mutate.sh --changed [COMMIT]   of the files that differ from COMMIT (HEAD)
#   --count N     mutants that count (20); those that do not compile or give equal code do not
#   --seed S      of the drawing; a random one is printed
#   --timeout S   for one group of tests (300)
#   --log FILE    adds outcomes to it as JSON lines; of the mutants that it has, only those that
#                 survived are tried again
#
# Builds in build/mutate, a work tree of its own with what yours has now. Tests run the cheapest
# first: those that include the file's header, the fast ones of its folder, its folder's on ranks,
# the golden texts, for a driver whole processes; those of a tool one by one, as ctest timed them.
# Exits with 1 if a mutant survives that scripts/mutate_equivalent.txt does not judge.
# build/mutate.log has what every command said.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/common.sh

case ${1:-} in
  -h | --help) sed -n '2,19s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
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
"$venv/bin/python" scripts/lib/mutate.py --jobs "$(jobs_for_build)" "$@"
