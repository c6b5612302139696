#!/usr/bin/env bash
# dev.sh: builds and tests what a change touches, the cheapest first.
#
#   scripts/dev.sh                 what differs from the last commit
#   scripts/dev.sh --changed REF   what differs from another commit
#   scripts/dev.sh FILE...         as if these files were changed
#   --mutate N                     at the end also N mutants of these files (scripts/mutate.sh)
#
# In order: the format of the changed files, the rules of lint, the fast tests of the folders that
# the change touches, the tests whose own files changed, clang-tidy over the changed sources. The
# last line says what was left out; scripts/test.sh runs that.
#
# Environment: STOWAGE_PRESET (host).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/common.sh
source scripts/lib/packages.sh
source scripts/lib/build.sh

preset=${STOWAGE_PRESET:-host}
mutants=0
others=()
while [ $# -gt 0 ]; do
  if [ "$1" = --mutate ]; then
    [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "--mutate '${2:-}': a number of mutants, 1 or more"
    mutants=$2
    shift
  else
    others+=("$1")
  fi
  shift
done
set -- "${others[@]}"
case ${1:-} in
  -h | --help) sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
  "" | --changed) which=(--changed "${2:-HEAD}") mutated=("${which[@]}") ;;
  -*) die "unknown argument '$1'; see --help" ;;
  *) which=("$@") mutated=(--files "$@") ;;
esac

touched() { python3 ctest/lint/includes.py "$1" "${which[@]}"; }
files=() rooms=()
listed=$(touched files) || die "these files cannot be listed: ${which[*]}"
[ -n "$listed" ] || { say "nothing differs" && exit 0; }
mapfile -t files <<<"$listed"
listed=$(touched rooms) || die "what includes these files cannot be listed: ${which[*]}"
[ -z "$listed" ] || mapfile -t rooms <<<"$listed"
say "${#files[@]} changed files, tests of: ${rooms[*]:-no folder}"

# own_tests: the names in ctest of tests whose own files changed, as regular expressions.
own_tests() {
  local file unit
  for file in "${files[@]}"; do
    case $file in
      ctest/*/*_test.py | ctest/*/*_test.cpp)
        unit=$(basename "${file%_test.*}")
        echo "$(basename "$(dirname "$file")").$unit" ;;
      results/tools/*) echo results ;;  # all of them: tools share most of their modules
    esac
  done | sort -u
}

check_format() {
  local file formatted=()
  for file in "${files[@]}"; do
    case $file in
      *.cpp | *.hpp | *.cu | *.cuh) [ ! -f "$file" ] || formatted+=("$file") ;;
    esac
  done
  [ "${#formatted[@]}" -eq 0 ] || clang-format --dry-run --Werror "${formatted[@]}"
  python3 ctest/lint/lint.py include_direction file_length line_length prose links readme notes \
    paths
}

# build_tests: the fast tests of the touched folders, the programs of changed tests, and, for
# scripts that start whole processes, all programs that people submit.
build_tests() {
  local targets known name
  configure "$preset" ON
  known=$(ninja -C "build/$preset" -t targets all)
  mapfile -t targets < <(
    printf 'stowage_fast_tests_%s\n' "${rooms[@]}"
    own_tests | sed 's/\./_/; s/^/test_/'
    [[ " ${files[*]} " != *" ctest/drivers/"*_test.py* ]] || echo stowage_programs
    [[ " ${files[*]} " != *" results/tools/"* ]] || printf 'test_results_%s\n' tools audit)
  local wanted=()
  for name in "${targets[@]}"; do
    ! grep -q "^$name:" <<<"$known" || wanted+=("$name")
  done
  [ "${#wanted[@]}" -eq 0 ] || build "$preset" "${wanted[@]}"
}

fast_tests() {
  local folders
  folders=$(IFS='|' && echo "${rooms[*]}")
  ctest --preset "$preset" --parallel "$(nproc)" --no-tests=ignore -L '^fast$' -R "^($folders)\\."
}

changed_tests() {
  local names
  names=$(own_tests | paste -sd '|')
  ctest --preset "$preset" --parallel "$(nproc)" -R "^($names)"
}

# check_sources: sources that this preset does not compile, such as those of the cuda backend, are
# left to scripts/test.sh --all.
check_sources() {
  local sources=()
  for file in "${files[@]}"; do
    [ -f "$file" ] || continue
    case $file in
      ctest/*) ;;
      *.hpp) sources+=("$file") ;;
      *.cpp) ! grep -q "$PWD/$file\"" "build/$preset/compile_commands.json" || sources+=("$file") ;;
    esac
  done
  [ "${#sources[@]}" -eq 0 ] ||
    python3 ctest/lint/tidy.py --tree "build/$preset" --jobs "$(jobs_for_build)" "${sources[@]}"
}

trap print_phases EXIT
phase "format and lint" 1 check_format
if [ "${#rooms[@]}" -gt 0 ]; then
  needed_phase "build" 5 build_tests
  phase "fast tests" 1 fast_tests
  [ -z "$(own_tests)" ] || phase "changed tests" 5 changed_tests
  if have clang-tidy-19; then
    phase "clang-tidy" 2 check_sources
  else
    skip_phase "clang-tidy" "no clang-tidy-19"
  fi
fi
[ "$mutants" -eq 0 ] || phase "mutants" 10 scripts/mutate.sh "${mutated[@]}" --count "$mutants"
note "left out: tests of ranks, whole processes, the matrix, other folders (scripts/test.sh)"
exit "$PHASE_FAILED"
