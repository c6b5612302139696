#!/usr/bin/env bash
# run.sh: builds Stowage out of this bundle, runs a few tests, the quick start and an acceptance of
# this machine on CPU ranks, signs that, and ends with one verdict. It loads nothing from a network.
#
#   ./run.sh                  all of it, in the folder `work` beside this file
#   ./run.sh --to FOLDER      elsewhere; a second run there goes on with what is built
#   ./run.sh --cuda           also build the cuda backend (CUDA 13 and NCCL)
#   ./run.sh --only STEPS     some of check,dependencies,build,test,quickstart,accept
#   ./run.sh --sign KEY.pem   sign by this private key; else by one that is made in the folder
#   ./run.sh ... -- ARGS      pass ARGS to CMake: -DBLA_VENDOR=FlexiBLAS, -DHDF5_ROOT=...
#
# Needs gcc 12 or newer, CMake 3.25, make, pkg-config, Python 3.11, tar with gzip and bzip2, an
# MPI, HDF5, a BLAS, and openssl to sign. Environment: CXX; STOWAGE_JOBS, parallel compile jobs;
# STOWAGE_MPIRUN, what starts ranks ("srun -n {ranks}").
#
# Exit code: 0 all VALID; 1 not; 2 wrong words; 3 something is missing here.
set -euo pipefail
bundle=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$bundle/stowage

to=$bundle/work key='' cuda=OFF only=check,dependencies,build,test,quickstart,accept arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
    --to | --only | --sign) [ $# -ge 2 ] || { echo "error: $1 needs a value" >&2 && exit 2; } ;;
  esac
  case $1 in
    --to) to=$2 && shift ;;
    --only) only=$2 && shift ;;
    --sign) key=$(realpath -m "$2") && shift ;;
    --cuda) cuda=ON ;;
    --) shift && arguments=("$@") && break ;;
    *) echo "error: unknown argument '$1'; see --help" >&2 && exit 2 ;;
  esac
  shift
done
mkdir -p "$to"
to=$(cd "$to" && pwd)
export STOWAGE_CACHE=$to/cache HOME=${HOME:-$to} PYTHONDONTWRITEBYTECODE=1
source "$source/scripts/lib/common.sh"
source "$source/scripts/lib/packages.sh"
source "$source/scripts/lib/kokkos.sh"
prefix=$to/dependencies
make_with=(-G "Unix Makefiles")
! have ninja || make_with=(-G Ninja)
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
launch=${STOWAGE_MPIRUN:-}
if [ -z "$launch" ]; then
  launch="mpirun -np {ranks}"
  ! mpirun --version 2>/dev/null | grep -q 'Open MPI' ||
    launch="mpirun --oversubscribe --bind-to none -np {ranks}"
fi

check() {
  local tool
  (cd "$bundle" && sha256sum --check --quiet --strict SHA256SUMS) ||
    die "files of this bundle are not those that were packed"
  require_tool "${CXX:-c++}" 12
  require_tool cmake 3.25
  for tool in make pkg-config tar gzip bzip2 openssl "${launch%% *}"; do
    have "$tool" || die "$tool is missing"
  done
  python3 -c 'import tomllib' 2>/dev/null || die "python3 is missing, or older than 3.11"
}

unpack() {
  rm -rf "$to/unpacked/$1"
  mkdir -p "$to/unpacked/$1"
  tar -xf "$(echo "$bundle/sources/$1".tar.*)" -C "$to/unpacked/$1" --strip-components=1
}

# with_cmake NAME ARGS...: builds a tree of the bundle into the prefix.
with_cmake() {
  local name=$1
  shift
  unpack "$name"
  cmake "${make_with[@]}" -S "$to/unpacked/$name" -B "$to/unpacked/$name/build" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib "$@"
  cmake --build "$to/unpacked/$name/build" --parallel "$(jobs_for_build)"
  cmake --install "$to/unpacked/$name/build"
}

build_hwloc() {
  unpack hwloc
  cd "$to/unpacked/hwloc"
  ./configure --prefix="$prefix" --libdir="$prefix/lib" --disable-static --disable-libxml2 \
    --disable-cairo --disable-opencl --disable-cuda --disable-nvml --disable-rsmi \
    --disable-levelzero --disable-gl --disable-pci --disable-libudev
  make -C include install
  make -C hwloc -j "$(jobs_for_build)" install  # the library alone
  make install-hwlocpkgconfigDATA
}

# Each is built once: the marker comes last.
dependencies() {
  local name log=$to/dependencies.log
  [ ! -f "$prefix/complete" ] || return 0
  rm -rf "$prefix"
  mkdir -p "$prefix"
  {
    tar -xf "$bundle/sources/headers.tar.gz" -C "$prefix" --strip-components=1
    with_cmake fmt -DFMT_TEST=OFF -DFMT_DOC=OFF
    with_cmake googletest -DBUILD_GMOCK=OFF
    (build_hwloc)
    unpack kokkos
    cached_kokkos || build_kokkos "$to/unpacked/kokkos" "$to/unpacked/kokkos_build"
    touch "$prefix/complete"
  } >"$log" 2>&1 || { tail -n 30 "$log" >&2 && die "a dependency could not be built: $log"; }
  rm -rf "$to/unpacked"
}

tests=(kernels.norm offload.planner results.files)
build_stowage() {
  local preset=host targets=("${tests[@]/#/test_}")
  [ "$cuda" = OFF ] || preset=cuda
  cd "$source"
  PKG_CONFIG_PATH=$prefix/lib/pkgconfig:${PKG_CONFIG_PATH:-} \
    cmake --preset "$preset" "${make_with[@]}" -B "$to/build" -DSTOWAGE_KOKKOS=SYSTEM \
    -DKokkos_ROOT="$(cached_kokkos)" -DCMAKE_PREFIX_PATH="$prefix" \
    "${arguments[@]}"
  cmake --build "$to/build" --parallel "$(jobs_for_build)" \
    --target stowage_programs "${targets[@]//./_}"
}

run_tests() {
  local names
  names=$(IFS='|' && echo "${tests[*]}")
  ctest --test-dir "$to/build" --output-on-failure --no-tests=error -R "^($names)$"
}

# The book, the deck and its bands are in the tree; programs run there.
quickstart() {
  local words
  read -ra words <<<"${launch//\{ranks\}/2}"
  cd "$source"
  "${words[@]}" "$to/build/bin/stowage_train" inputs/quickstart.toml execution.backend=host \
    run.output="$to/quickstart.h5"
}

# Runs of twenty steps have no second loss and are far from the bound of the deck's last one.
accept() {
  local keys="execution.backend=host validate.finite_differences=off"
  keys+=" validate.val_loss_below=inf validate.val_loss_falling=false"
  printf '[machine]\nname = "here"\n' >"$to/here.toml"
  if [ -z "$key" ]; then
    key=$to/key.pem
    [ -f "$key" ] || (umask 077 && openssl genpkey -algorithm RSA -out "$key" 2>/dev/null) ||
      die "openssl makes no key"
  fi
  cd "$source"
  python3 scripts/accept/stowage_accept.py "$to/here.toml" --ranks 2 --bin "$to/build/bin" \
    --out "$to/acceptance" --decks quickstart --short quickstart --keys \
    "$keys" --steps 20 --rounds 2 --largest 1M --sign "$key" \
    --alone "${launch//\{ranks\}/1}" --all "$launch"
}

verdict() {
  local verdict=VALID
  [ "$PHASE_FAILED" -eq 0 ] || verdict=INVALID
  print_phases
  echo "STOWAGE BUNDLE $verdict  commit=$(cat "$source/COMMIT")  results=$to"
}

wanted() { [[ ,$only, == *,$1,* ]]; }
! wanted check || check
trap verdict EXIT
! wanted dependencies || needed_phase "dependencies" 10 dependencies
! wanted build || needed_phase "build" 60 build_stowage
! wanted test || phase "tests" 5 run_tests
! wanted quickstart || phase "quick start" 10 quickstart
! wanted accept || phase "acceptance" 10 accept
exit "$PHASE_FAILED"
