#!/usr/bin/env bash
# predict_layouts.sh [--bin FOLDER]: prints results/predicted/README.md: the quickest
# layouts of hybrid-moe-2b on 8 to 4096 and of nemotron-nano-30b on 8 to 16384 GPUs of
# inputs/machines/h200-cluster, as stowage_plan --ranks finds them, with two sequences a GPU. Takes
# some minutes.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$source/build/host/bin
case "${1:-}" in
  '') ;;
  --bin) bin=${2:?--bin needs a folder} ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 2 ;;
esac
[ -x "$bin/stowage_plan" ] || { echo "error: no stowage_plan in $bin" >&2; exit 3; }

deck=$(mktemp --suffix=.toml)
trap 'rm -f "$deck"' EXIT
cat <<'END'
# Predicted layouts

What `scripts/predict_layouts.sh` prints: the quickest layouts that `stowage_plan DECK --ranks N`
finds ([how](../../docs/guides/layouts.md)), for a batch of two sequences of 8192 tokens a GPU. They
rest on

- rates of one H200 that were measured (`inputs/machines/h200.toml`);
- links of `inputs/machines/h200-cluster.toml`: 320 GB/s in a host of 8, 45 GB/s a GPU between hosts
  and half of that beyond 32 hosts, 8 us a message there. Only the first was measured, on two
  GPUs; four had 220, as long as all fetched from the same one first;
- tokens that choose experts evenly. Predictions were checked against runs on one, two and four
  GPUs ([how good they are](../../docs/guides/layouts.md)), on no more.
END
printf '\nBy %s.\n' "$("$bin/stowage_plan" --version)"
for name in hybrid-moe-2b nemotron-nano-30b; do
  printf '\n## %s\n' "$name"
  sizes=(8 16 64 512 4096)
  [ "$name" = hybrid-moe-2b ] || sizes+=(16384)
  for ranks in "${sizes[@]}"; do
    printf 'include = ["%s/inputs/%s.toml", "%s/inputs/machines/h200-cluster.toml"]\n' \
      "$source" "$name" "$source" >"$deck"
    printf '\n```\n'
    "$bin/stowage_plan" "$deck" --ranks "$ranks" --best 3 "train.global_batch_size=$((2 * ranks))" \
      train.micro_batch_size=1
    printf '```\n'
  done
done
