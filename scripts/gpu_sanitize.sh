#!/usr/bin/env bash
# gpu_sanitize.sh [OPTION...]: compute-sanitizer's tools over the GPU tests of the operators, with
# one replay of each graph, from a build made elsewhere. Exit code 1 if a tool reports anything, a
# test fails or a run is left out.
#
#   --bin FOLDER    where the test programs lie (build/device/ctest/bin)
#   --logs FOLDER   where logs go, one a run (FOLDER of --bin/sanitizer)
#   --only REGEX    the runs that match, as --list prints them; programs may be missing then
#   --jobs N        runs beside each other (the cores; each needs one, and 2 GiB of the GPU)
#   --each S        seconds that one run may take (300)
#   --seconds S     end all after S seconds (600)
#   --list          print the runs
#
# Operators whose tests take long are run test by test. Left out is what the tools misread, or may:
# - initcheck sees no write by the copy engine (a kernel that stores by cp.async.bulk and one that
#   reads it suffice), and that is how the library's products store: its own kernel that adds split
#   sums, softmax over its logits and `join_kernel` read "uninitialised" memory.
# - racecheck takes barriers of the library's products for none, and fails beside products that it
#   does not look at; so linear is left out, with its one kernel that has shared memory, and of
#   cross_entropy it sees the pass over logits alone.
# - Two accesses on both sides of __syncthreads() are reported in RMSNorm's backward
#   (store_partial), for teams of two warps and more, never of one, also where every team has come
#   to its own named barrier before. In the machine code one BAR.SYNC 0, which all warps of the
#   block execute, lies between each pair that is named, so none is a race.
# - racecheck takes an arrival at an mbarrier for the lane alone that arrives, not for its warp,
#   which has met before: a warp that writes words and whose first lane arrives, and one that waits
#   and writes them, are reported; when all lanes arrive, they are not, also by way of a third warp.
#   So slots of the weight gradients' way out, which pass so between warpgroups, are reported, and
#   tiles of Newton-Schulz, which its scheduler hands to warps.
# - attention's tests write all of its memory first: initcheck would learn nothing.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() { sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
die() { echo "error: $*" >&2; exit "${code:-2}"; }

bin=$source/build/device/ctest/bin logs='' only=. jobs=$(nproc) each=300 seconds=600 list=0
while [ $# -gt 0 ]; do
  case $1 in
    --bin | --logs | --only | --jobs | --each | --seconds) [ $# -ge 2 ] || die "$1 needs a value" ;;
  esac
  case $1 in
    -h | --help) usage && exit 0 ;;
    --bin) bin=$2 && shift ;;
    --logs) logs=$2 && shift ;;
    --only) only=$2 && shift ;;
    --jobs) jobs=$2 && shift ;;
    --each) each=$2 && shift ;;
    --seconds) seconds=$2 && shift ;;
    --list) list=1 ;;
    *) die "unknown option $1; --help lists them" ;;
  esac
  shift
done
[ -d "$bin" ] || code=3 die "no test programs in $bin"
[ "$list" -eq 1 ] || command -v compute-sanitizer >/dev/null || code=3 die "no compute-sanitizer"
logs=${logs:-$bin/sanitizer}
export STOWAGE_TEST_REPLAYS=1 OMP_NUM_THREADS=1

tools=(racecheck memcheck synccheck initcheck)
# What takes longest comes first.
units=(attention ssd conv_scan gated_delta grouped_linear grouped_mlp muon ssd_queue norm router
  optimizer permute decode cross_entropy fp8 activation conv1d elementwise embedding hopper linear
  rope)

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

# filter TOOL UNIT: the tests of a unit; long batches and lists are left out, and what takes minutes
# or only repeats what other tests run.
filter() {
  case $1.$2 in
    racecheck.cross_entropy) echo '*.softmax_alone' ;;
    *.attention)
      echo '*.short_batches:*.free_strides:*.equal_lengths*:*.room_for*:*.no_room*:*.one_long*'
      ;;
    *.ssd)
      echo '*.less*:*.groups*:*.documents_of_one*:*.head_dim*:*.two_segments:*.total_decay*:'\
'*.pieces_of*:*.more_pieces*'
      ;;
    *.gated_delta) echo '*.warp_group*:*.what_enters*:*.gated_norm*:*.no_tokens' ;;
    initcheck.fp8) echo '-*products*' ;;  # the library's
    *.conv_scan) echo 'conv_scan_gpu.fused*:*.two_segments:*.other*' ;;
    *.grouped_*) echo '-*.many_*:*.same_bits*' ;;
    *_queue) echo '-*replays*' ;;
    *) echo '-*long*:*far*' ;;
  esac
}

program() { echo "$bin/test_kernels_$1_gpu"; }

# filters TOOL UNIT: one line for each run of the tool.
filters() {
  case $2 in
    attention | ssd | conv_scan | gated_delta | grouped_* | muon | ssd_queue | norm | router | \
      optimizer | permute | decode)
      "$(program "$2")" --gtest_list_tests "--gtest_filter=$(filter "$1" "$2")" |
        awk '/^[^ ]/ {suite = $1} /^  / && suite ~ /\.$/ {print suite $1}' ;;
    *) filter "$1" "$2" ;;
  esac
}

# Each run leaves TOOL UNIT CODE SECONDS LOG TESTS in a file; the code is 124 when its time is over,
# 125 when it was never begun, 77 when no test ran.
run() {
  local tool=$1 unit=$2 tests=$3 log=$4 start=$SECONDS limits rc=0
  read -ra limits <<<"$(options "$tool" "$unit")"
  local left=$((seconds - SECONDS))
  if [ "$left" -le 0 ]; then
    rc=125
  else
    timeout -k 5 "$((left < each ? left : each))" compute-sanitizer --tool "$tool" \
      --error-exitcode 9 --print-limit 20 "${limits[@]}" "$(program "$unit")" \
      "--gtest_filter=$tests" >"$log" 2>&1 </dev/null || rc=$?
    # a filter that names no test, or a test that is skipped, is no clean run
    [ "$rc" -ne 0 ] || grep -aq '\[  PASSED  \] [1-9]' "$log" || rc=77
  fi
  echo "$tool $unit $rc $((SECONDS - start)) ${log##*/} $tests" >"${log%.log}.result"
}

# table: a row for each unit with the state of each tool and its seconds, summed over its runs.
table() {
  cat "$logs"/*.result | awk -v units="${units[*]}" -v tools="${tools[*]}" '
    { key = $2 " " $1; time[key] += $4
      bad = $3 == 0 ? 0 : $3 == 125 ? 1 : $3 == 77 ? 2 : $3 == 124 ? 3 : $3 == 9 ? 5 : 4
      if (!(key in worst) || bad > worst[key]) worst[key] = bad }
    END {
      split("left skipped time failed reports", name, " "); name[0] = "clean"
      n = split(units, unit, " "); m = split(tools, tool, " ")
      printf "%-16s", "unit"
      for (j = 1; j <= m; ++j) printf "%-16s", tool[j]
      printf "\n"
      for (i = 1; i <= n; ++i) {
        line = ""; any = 0
        for (j = 1; j <= m; ++j) {
          key = unit[i] " " tool[j]
          cell = key in worst ? name[worst[key]] " " time[key] " s" : "-"
          any += key in worst
          line = line sprintf("%-16s", cell)
        }
        if (any) printf "%-16s%s\n", unit[i], line
      }
    }'
}

runs=()
for unit in "${units[@]}"; do
  if [ ! -x "$(program "$unit")" ]; then
    [ "$only" != . ] || code=3 die "no $(program "$unit")"
    continue
  fi
  for tool in "${tools[@]}"; do
    [ -n "$(options "$tool" "$unit")" ] || continue
    while read -r tests; do
      [[ "$tool $unit $tests" =~ $only ]] && runs+=("$tool $unit $tests")
    done < <(filters "$tool" "$unit")
  done
done
[ "${#runs[@]}" -gt 0 ] || die "no run is named $only"
if [ "$list" -eq 1 ]; then
  printf '%s\n' "${runs[@]}"
  exit 0
fi

mkdir -p "$logs"
for tool in "${tools[@]}"; do rm -f "$logs/$tool".*.log "$logs/$tool".*.result; done
number=0
for line in "${runs[@]}"; do
  read -r tool unit tests <<<"$line"
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
  number=$((number + 1))
  run "$tool" "$unit" "$tests" "$logs/$tool.$unit.$number.log" &
done
wait

table
bad=0
while read -r tool unit rc _ log tests; do
  [ "$rc" -ne 0 ] || continue
  bad=$((bad + 1))
  echo "$tool $unit $tests: code $rc; $log; $(grep -as 'SUMMARY' "$logs/$log" | tail -n 1)"
done < <(cat "$logs"/*.result)
echo "${#runs[@]} runs, $bad not clean, $SECONDS s"
[ "$bad" -eq 0 ]
