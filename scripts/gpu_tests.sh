#!/usr/bin/env bash
# gpu_tests.sh [FOLDER [GTEST_ARGUMENT...]]: runs the test programs that need a GPU, out of a build
# made on another machine (cmake --preset device); ctest needs the paths of the machine that built.
# FOLDER is where the programs lie: build/device/ctest/bin. Programs for several ranks run on as
# many as they ask for and the machine has GPUs. Without gtest arguments, the trainer's own cases
# on GPUs follow (train_gpu_test.py) if it lies in FOLDER/../../bin and python3 has h5py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

folder=${1:-build/device/ctest/bin}
[ $# -eq 0 ] || shift
[ -f "$folder/gpu_tests.txt" ] || { echo "error: no gpu_tests.txt in $folder" >&2; exit 3; }
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true)

passed=0 failed=0 skipped=0 failures=()

# run NAME COMMAND...: one program, whose exit code counts beside what it prints: one that dies
# prints no summary. 77: skipped.
run() {
  local name=$1 output rc=0 skips oks
  shift
  echo "== $name"
  output=$(mktemp)
  "$@" </dev/null 2>&1 | tee "$output" || rc=$?
  count() { sed -nE "s/^\[  $1 +\] ([0-9]+) tests?.*/\1/p" "$output" | sed -n 1p; }
  skips=$(count SKIPPED) oks=$(count PASSED)
  if [ "$rc" -eq 77 ]; then
    skips=1
  elif [ "$rc" -ne 0 ]; then
    failed=$((failed + 1)) failures+=("$name")
  elif grep -qx passed "$output"; then
    oks=1
  fi
  passed=$((passed + ${oks:-0})) skipped=$((skipped + ${skips:-0}))
  rm -f "$output"
}

while read -r program ranks; do
  [ -n "$program" ] || continue
  for number in ${ranks:-1}; do
    if [ "$number" -eq 1 ]; then
      run "$program" "$folder/$program" "$@"
    elif [ "$number" -le "$gpus" ]; then
      run "$program on $number ranks" mpirun --bind-to none -np "$number" "$folder/$program" "$@"
    else
      echo "== $program on $number ranks: skipped, $gpus GPUs"
      skipped=$((skipped + 1))
    fi
  done
done <"$folder/gpu_tests.txt"

cases=ctest/drivers/train_gpu_test.py
train=$folder/../../bin/stowage_train
if [ $# -eq 0 ] && [ -x "$train" ] && python3 -c 'import h5py' 2>/dev/null; then
  while read -r _ name; do
    run "$name" python3 "$cases" "$name" --train "$train" --source . \
      --old-driver "$folder/old_driver"
  done < <(python3 "$cases" --list)
else
  echo "== the trainer's cases: left out"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] || printf 'failed: %s\n' "${failures[@]}"
[ "$failed" -eq 0 ]
