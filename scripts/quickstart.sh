#!/usr/bin/env bash
# quickstart.sh: sets up what is missing, builds the trainer and trains a small hybrid model on a
# real book with two MPI ranks on CPU cores. Leaves a result set, JSON lines, a plot and a
# checkpoint, and ends with a text by the model.
#
#   scripts/quickstart.sh                         the quick start
#   scripts/quickstart.sh optim.lr=1e-3 ...       the same with parameters of the deck changed
#
# Environment: STOWAGE_RANKS (2), STOWAGE_PRESET (host).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/common.sh
source scripts/lib/packages.sh
source scripts/lib/build.sh
source scripts/lib/text.sh

case ${1:-} in
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
esac
preset=${STOWAGE_PRESET:-host}
ranks=${STOWAGE_RANKS:-2}
output=runs/quickstart

ensure_packages build run

say "Building the trainer (build/$preset)"
configure "$preset" OFF
build "$preset" stowage_train stowage_generate
ensure_any_text

say "Training on $ranks ranks"
mkdir -p "$output"
keys=(checkpoint.directory="$output/checkpoint" "${TEXT_KEYS[@]}" "$@")
mpi_ranks "$ranks" "build/$preset/bin/stowage_train" inputs/quickstart.toml \
  run.output="$output/quickstart.h5" "${keys[@]}" checkpoint.resume=never

say "Plotting"
/usr/bin/python3 results/tools/plot.py "$output/quickstart.h5" >/dev/null

say "Results are in $output/:"
for file in "$output"/*; do
  note "$file"
done
note "look at the plot, or compare two runs: /usr/bin/python3 results/tools/compare.py A.h5 B.h5"

say "A text by the model"
# One thread: a pass takes milliseconds.
OMP_NUM_THREADS=1 "build/$preset/bin/stowage_generate" inputs/quickstart.toml "${keys[@]}" \
  train.seq_length=256 --prompt "In the beginning " --tokens 110 --temperature 0.7 --top-p 0.9
