#!/usr/bin/env bash
# golden.sh: writes ctest/golden/ anew, for a change that means to change what it holds.
#
#   scripts/golden.sh
#
# Builds the programs, then runs the tests `golden` with STOWAGE_WRITE_GOLDEN=1. Look at
# `git diff ctest/golden docs` before the commit.
#
# Environment: STOWAGE_PRESET (host).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/common.sh
source scripts/lib/packages.sh
source scripts/lib/build.sh

case ${1:-} in
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
  ?*) die "unknown argument '$1'; see --help" ;;
esac
preset=${STOWAGE_PRESET:-host}

configure "$preset" ON
say "build"
build "$preset" stowage_programs test_golden_programs
say "write"
STOWAGE_WRITE_GOLDEN=1 ctest --preset "$preset" --parallel "$(nproc)" -R '^golden\.'
git status --short ctest/golden docs
