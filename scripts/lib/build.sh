# shellcheck shell=bash
# Configuring and building by preset. Source common.sh first.

# configure PRESET TESTS(ON|OFF) [WERROR(ON|OFF) [UNIT_TESTS(ON|OFF)]]: runs CMake when the tree is
# new, or lacks tests or -Werror but should have them; later changes of CMake files are noticed by
# the build. Compiles go through ccache if there is one.
configure() {
  local preset=$1 tests=$2 werror=${3:-OFF} unit=${4:-$2} arguments=()
  local tree=$STOWAGE_SOURCE/build/$preset
  if [ -f "$tree/build.ninja" ] && has_option "$tree" STOWAGE_TESTS "$tests" &&
    has_option "$tree" STOWAGE_UNIT_TESTS "$unit" &&
    has_option "$tree" STOWAGE_WERROR "$werror"; then
    return 0
  fi
  if have ccache; then
    arguments=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
  fi
  (cd "$STOWAGE_SOURCE" && cmake --preset "$preset" -DSTOWAGE_TESTS="$tests" \
    -DSTOWAGE_UNIT_TESTS="$unit" -DSTOWAGE_WERROR="$werror" "${arguments[@]}")
}

# has_option TREE NAME WANTED: whether a configured tree has an option on, where that is wanted.
has_option() {
  [ "$3" = OFF ] || grep -q "^$2:BOOL=ON" "$1/CMakeCache.txt"
}

# build PRESET [TARGET...]: the preset's own targets when none is given.
build() {
  local preset=$1 targets=()
  shift
  [ $# -eq 0 ] || targets=(--target "$@")
  (cd "$STOWAGE_SOURCE" &&
    cmake --build --preset "$preset" --parallel "$(jobs_for_build)" "${targets[@]}")
}

# find_nvcc: whether device code can be compiled here; puts nvcc on PATH.
find_nvcc() {
  have nvcc && return 0
  local folder
  for folder in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
    if [ -n "$folder" ] && [ -x "$folder/bin/nvcc" ]; then
      export PATH="$folder/bin:$PATH"
      return 0
    fi
  done
  return 1
}

# mpi_ranks COUNT COMMAND...: mpirun, which wants to be told when it runs as root, or when there are
# fewer cores than ranks. One thread a rank unless the caller has chosen.
mpi_ranks() {
  local count=$1 options=(--oversubscribe --bind-to none)
  shift
  [ "$(id -u)" -ne 0 ] || options+=(--allow-run-as-root)
  OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMP_PROC_BIND=${OMP_PROC_BIND:-false} \
    OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1} mpirun "${options[@]}" -np "$count" "$@"
}
