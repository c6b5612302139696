# shellcheck shell=bash
# Shared by every script: where the source tree is, how to talk, how to time a phase.
# Source it from a script that has already set `set -euo pipefail`.

STOWAGE_SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
STOWAGE_CACHE=${STOWAGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stowage}
export STOWAGE_SOURCE STOWAGE_CACHE

if [ -t 2 ]; then
  say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }
else
  say() { printf '== %s\n' "$*" >&2; }
fi
note() { printf '   %s\n' "$*" >&2; }

# die MESSAGE...: exit code 3 means "environment" in all programs of Stowage.
die() {
  printf 'error: %s\n' "$*" >&2
  exit 3
}

have() { command -v "$1" >/dev/null 2>&1; }

# jobs_for_build: parallel compile jobs: one a core, as far as memory allows 2 GiB for each.
jobs_for_build() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ {n = int($2 / 2097152); print (n > 0 ? n : 1)}' /proc/meminfo)
  echo "${STOWAGE_JOBS:-$((cores < memory ? cores : memory))}"
}

# phase NAME BUDGET_MINUTES COMMAND...: runs the command, remembers how long it took and how it
# ended, and goes on; after a failure PHASE_FAILED is 1. Call it as a plain command: inside an `if`
# or a `||` list bash would ignore errors in the middle of the command.
PHASE_LINES=()
export PHASE_FAILED=0
phase() {
  local name=$1 budget_s=$(($2 * 60)) start=$SECONDS rc verdict=ok
  shift 2
  say "$name"
  set +e
  (set -e; "$@")
  rc=$?
  set -e
  local elapsed_s=$((SECONDS - start))
  [ "$elapsed_s" -le "$budget_s" ] || verdict="over budget"
  if [ "$rc" -ne 0 ]; then
    verdict="FAILED with code $rc"
    PHASE_FAILED=1
  fi
  PHASE_LINES+=("$(printf '%-22s %5d s of %5d s  %s' "$name" "$elapsed_s" "$budget_s" "$verdict")")
}

# needed_phase: like phase, but what comes after makes no sense without it.
needed_phase() {
  local before=$PHASE_FAILED
  PHASE_FAILED=0
  phase "$@"
  [ "$PHASE_FAILED" -eq 0 ] || exit 1
  PHASE_FAILED=$before
}

# skip_phase NAME WHY: a phase that this run leaves out is said, not passed over.
skip_phase() { PHASE_LINES+=("$(printf '%-22s not run: %s' "$1" "$2")"); }

print_phases() {
  printf '\nTime budgets\n'
  printf '  %s\n' "${PHASE_LINES[@]}"
  printf '  %-22s %5d s\n' total "$SECONDS"
}
