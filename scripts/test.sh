#!/usr/bin/env bash
# test.sh: sets up what is missing, builds Stowage and runs its tests.
#
#   scripts/test.sh            host build and tests; device code too where nvcc is found
#   scripts/test.sh --all      what CI runs: warnings are errors, also clang-tidy, the unit tests
#                              under sanitizers, and the quick start
#   scripts/test.sh -- ARGS    passes ARGS to ctest, such as -L unit or -R kernels.norm
#
# Environment: STOWAGE_PRESET (cuda where nvcc is found, otherwise host).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/common.sh
source scripts/lib/packages.sh
source scripts/lib/build.sh
source scripts/lib/text.sh

all=no werror=OFF
while [ $# -gt 0 ]; do
  case $1 in
    --all) all=yes werror=ON ;;
    --) shift && break ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
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
  ensure_packages "${PACKAGES_BUILD[@]}" "${PACKAGES_RUN[@]}" "${PACKAGES_TEST[@]}"
  [ "$all" = no ] || ensure_packages "${PACKAGES_CLUSTER[@]}" "${PACKAGES_TIDY[@]}"
  ensure_text
  configure "$preset" ON "$werror"
}

failed_tests() { echo "build/$1/Testing/Temporary/LastTestsFailed.log"; }

run_tests() {
  ctest --preset "$preset" --parallel "$(nproc)" --output-junit ctest.xml "$@"
}

check_sources() {
  python3 ctest/lint/tidy.py --tree "build/$preset" --jobs "$(jobs_for_build)"
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
  needed_phase "CUDA compile" 20 build cuda stowage_cuda_objects
else
  skip_phase "CUDA compile" "preset $preset"
fi
needed_phase "host build" 8 build "$preset"
phase "tests" 10 run_tests "$@"
if [ "$all" = yes ]; then
  phase "clang-tidy" 15 check_sources
  phase "sanitizers" 20 sanitizers
  phase "quick start" 7 quick_start
else
  skip_phase "clang-tidy" "only with --all"
  skip_phase "sanitizers" "only with --all"
fi
exit "$PHASE_FAILED"
