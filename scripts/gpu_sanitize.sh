#!/usr/bin/env bash
# gpu_sanitize.sh [FOLDER [SECONDS]]: compute-sanitizer's tools over the GPU tests of the operators,
# with one replay of each graph, from a build made elsewhere. FOLDER is where the test programs lie
# (build/device/ctest/bin); logs go to FOLDER/sanitizer. Each run may take SECONDS (600). Exit code
# 1 if a tool reports anything or a test fails.
#
# Left out is what the tools misread, or may:
# - initcheck sees no write by the copy engine (a kernel that stores by cp.async.bulk and one that
#   reads it suffice), and that is how the library's products store: its own kernel that adds split
#   sums, softmax over its logits and `join_kernel` read "uninitialised" memory.
# - racecheck takes barriers of the library's products for none, and fails beside products that it
#   does not look at; linear has no shared memory of its own.
# - Two accesses on both sides of __syncthreads() are reported in RMSNorm's backward
#   (store_partial), for teams of two warps and more, never of one, also where every team has come
#   to its own named barrier before. In the machine code one BAR.SYNC 0, which all warps of the
#   block execute, lies between each pair that is named, so none is a race.
# - Slots of the weight gradients' way out pass from one warpgroup to the other by way of a third
#   warp that waits at one mbarrier and arrives at the next; racecheck reports their accesses. That
#   it does not follow such a chain is not proved.
# - attention's tests write all of its memory first: initcheck would learn nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-build/device/ctest/bin} seconds=${2:-600}
command -v compute-sanitizer >/dev/null || { echo "error: no compute-sanitizer" >&2; exit 3; }
[ -d "$folder" ] || { echo "error: no test programs in $folder" >&2; exit 3; }
logs=$folder/sanitizer
mkdir -p "$logs"

# options TOOL UNIT: what a run is limited to; nothing: it is left out.
options() {
  case $1.$2 in
    racecheck.linear | initcheck.linear | initcheck.cross_entropy | initcheck.attention) ;;
    racecheck.grouped_linear) echo "--kernel-name kernel_substring=grouped_rows" ;;
    racecheck.norm) echo "--kernel-name-exclude kernel_substring=backward_kernel" ;;
    initcheck.grouped_*) echo "--kernel-name kernel_substring=stowage" ;;
    initcheck.*) echo "--kernel-name-exclude kernel_substring=join_kernel" ;;
    *) echo "--kernel-name kernel_substring=stowage" ;;
  esac
}
export STOWAGE_TEST_REPLAYS=1
bad=0 runs=0

# filter UNIT: the tests of a unit; long batches and lists are left out, and what takes minutes.
filter() {
  case $1 in
    attention) echo '*.short_batches:*.free_strides:*.equal_lengths:*.room_for*:*.no_room*' ;;
    ssd) echo 'ssd_gpu.less*:*.groups*:*.documents_of_one*:*.head_dim*:*.two_segments' ;;
    conv_scan) echo 'conv_scan_gpu.fused*:*.two_segments:*.other*' ;;
    grouped_linear) echo '-*.many_*' ;;
    *_queue) echo '-*replays*' ;;
    *) echo '-*long*:*far*' ;;
  esac
}

# check TOOL UNIT [OPTION...]: one run.
check() {
  local name=$1.$2 tool=$1 program=$folder/test_kernels_$2_gpu filter
  filter=$(filter "$2")
  shift 2
  timeout "$seconds" compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 "$@" \
    "$program" "--gtest_filter=$filter" >"$logs/$name.log" 2>&1 </dev/null || return
  grep -aq '\[  PASSED  \] [1-9]' "$logs/$name.log"  # a filter that names no test is no clean run
}

# A unit's tools run one after another, the units beside each other.
unit() {
  local tool rc limits
  for tool in memcheck racecheck synccheck initcheck; do
    read -ra limits <<<"$(options "$tool" "$1")"
    [ "${#limits[@]}" -gt 0 ] || continue
    rc=0
    check "$tool" "$1" "${limits[@]}" || rc=$?
    echo "$1 $tool: code $rc; $(grep -a 'SUMMARY' "$logs/$tool.$1.log" | tail -n 1)"
  done
}

for name in activation attention conv1d conv1d_queue conv_scan cross_entropy elementwise \
  embedding grouped_linear grouped_mlp linear norm optimizer permute rope router ssd ssd_queue; do
  unit "$name" >"$logs/$name.txt" &
done
wait
for list in "$logs"/*.txt; do
  while read -r line; do
    echo "$line"
    runs=$((runs + 1))
    [[ $line == *": code 0;"* ]] || bad=$((bad + 1))
  done <"$list"
done
echo "$runs runs, $bad not clean"
[ "$bad" -eq 0 ]
