#!/usr/bin/env bash
# quickstart.sh: sets up what is missing, builds the trainer and trains a small hybrid model on a
# real book with two MPI ranks on CPU cores. Ends with a result set, JSON lines and a plot.
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
  -h | --help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
esac
preset=${STOWAGE_PRESET:-host}
ranks=${STOWAGE_RANKS:-2}
output=runs/quickstart

ensure_packages build run

say "Building the trainer (build/$preset)"
configure "$preset" OFF
build "$preset" stowage_train
ensure_any_text

say "Training on $ranks ranks"
mkdir -p "$output"
mpi_ranks "$ranks" "build/$preset/bin/stowage_train" inputs/quickstart.toml \
  run.output="$output/quickstart.h5" "${TEXT_KEYS[@]}" "$@"

say "Plotting"
/usr/bin/python3 results/tools/plot.py "$output/quickstart.h5" >/dev/null

say "Results are in $output/:"
for file in "$output"/*; do
  note "$file"
done
note "look at the plot, or compare two runs: /usr/bin/python3 results/tools/compare.py A.h5 B.h5"
