#!/usr/bin/env bash
# gpu_tests.sh [FOLDER [GTEST_ARGUMENT...]]: runs the test programs that need a GPU, out of a build
# made on another machine (cmake --preset device); ctest needs the paths of the machine that built.
# FOLDER is where the programs lie: build/device/ctest/bin.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-build/device/ctest/bin}
[ $# -eq 0 ] || shift
[ -f "$folder/gpu_tests.txt" ] || { echo "error: no gpu_tests.txt in $folder" >&2; exit 3; }

passed=0 failed=0 skipped=0
while read -r program; do
  [ -n "$program" ] || continue
  echo "== $program"
  output=$(mktemp)
  # The exit code counts as well: a program that dies prints no summary.
  if ! "$folder/$program" "$@" 2>&1 </dev/null | tee "$output"; then
    failed=$((failed + 1))
  fi
  count() { sed -nE "s/^\[  $1 +\] ([0-9]+) tests?.*/\1/p" "$output" | sed -n 1p; }
  skips=$(count SKIPPED) oks=$(count PASSED)
  passed=$((passed + ${oks:-0})) skipped=$((skipped + ${skips:-0}))
  rm -f "$output"
done <"$folder/gpu_tests.txt"

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
