#!/usr/bin/env bash
# build_kokkos.sh: prints the prefix of a host-only Kokkos (Serial and OpenMP) in the user's cache,
# built from the distribution's source package the first time. CMake runs it when it finds none.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$STOWAGE_SOURCE/scripts/lib/kokkos.sh"

ensure_kokkos || die "no Kokkos source package could be fetched and built; see the lines above"
