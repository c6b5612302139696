#!/usr/bin/env bash
# test.sh: sets up what is missing, builds Stowage and runs its tests.
#
#   scripts/test.sh            host build and tests; device code too where nvcc is found
#   scripts/test.sh --all      what CI runs: warnings are errors, unit tests of one process run
#                              under sanitizers instead, also clang-tidy and the quick start
#   scripts/test.sh --plain    also a build without precompiled headers: missing includes show
#   scripts/test.sh -- ARGS    passes ARGS to ctest, such as -L unit or -R kernels.norm
#
# Environment: STOWAGE_PRESET (cuda where nvcc is found, otherwise host).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/common.sh
source scripts/lib/packages.sh
source scripts/lib/build.sh
source scripts/lib/text.sh

all=no plain=no werror=OFF unit=ON
while [ $# -gt 0 ]; do
  case $1 in
    --all) all=yes werror=ON unit=OFF ;;
    --plain) plain=yes ;;
    --) shift && break ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
    *) die "unknown argument '$1'; see --help" ;;
  esac
  shift
done

preset=${STOWAGE_PRESET:-}
if [ -z "$preset" ]; then
  preset=host
  ! find_nvcc || preset=cuda
fi

set_up() {
  ensure_packages build run test
  [ "$all" = no ] || ensure_packages cluster tidy
  if [ "$all" = yes ] && grep -qx ID=debian /etc/os-release; then
    (ensure_packages browse) || note "no browser: the report is not looked at in one"
  fi
  ensure_text
  configure "$preset" ON "$werror" "$unit"
}

failed_tests() { echo "build/$1/Testing/Temporary/LastTestsFailed.log"; }

run_tests() {
  # Three a core at a time: whole processes wait for one another, for files and for timers.
  ctest --preset "$preset" --parallel "$((3 * $(nproc)))" --output-junit ctest.xml "$@"
}

check_sources() {
  python3 ctest/lint/tidy.py --tree "build/$preset" --jobs "$(jobs_for_build)"
}

plain_build() {
  configure plain ON "$werror"
  build plain
}

sanitizers() {
  configure asan ON "$werror"
  build asan
  ctest --preset asan --parallel "$(nproc)"
}

quick_start() {
  STOWAGE_PRESET=$preset scripts/quickstart.sh
}

# The end of a long log names what failed.
summary() {
  local names
  print_phases
  names=$(cat "$(failed_tests "$preset")" "$(failed_tests asan)" 2>/dev/null |
    sed 's/^[0-9]*:/  /' || true)
  [ -z "$names" ] || printf '\nTests that failed\n%s\n' "$names"
}

rm -f "$(failed_tests "$preset")" "$(failed_tests asan)"  # of runs before
# A failed build ends the script; after a failed test the rest still runs: one run tells all.
trap summary EXIT
needed_phase "set-up and configure" 5 set_up
if [ "$preset" = cuda ]; then
  needed_phase "CUDA compile" 5 build cuda stowage_cuda_objects
else
  skip_phase "CUDA compile" "preset $preset"
fi
needed_phase "host build" 8 build "$preset"
phase "tests" 10 run_tests "$@"
if [ "$all" = yes ]; then
  phase "clang-tidy" 6 check_sources
  phase "sanitizers" 12 sanitizers
  phase "quick start" 1 quick_start
else
  skip_phase "clang-tidy" "only with --all"
  skip_phase "sanitizers" "only with --all"
fi
[ "$plain" = no ] || phase "plain build" 12 plain_build
exit "$PHASE_FAILED"
