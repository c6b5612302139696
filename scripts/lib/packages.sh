# shellcheck shell=bash
# shellcheck disable=SC2034  # the lists are named by ensure_packages
# Packages of Debian and Ubuntu: installs what is missing where root or sudo is at hand, otherwise
# says what is missing and how to get it. Source common.sh first.

# For the build. Any HDF5 will do: the parallel one is asked for only when there is none.
PACKAGES_BUILD=(
  g++ cmake ninja-build pkg-config git python3
  libopenmpi-dev libopenblas-dev libhwloc-dev
  libfmt-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev
  ccache
)
# To run the main job: ranks, topology, the text to train on, plots.
PACKAGES_RUN=(openmpi-bin hwloc-nox bible-kjv python3-h5py python3-matplotlib)
PACKAGES_TEST=(libgtest-dev clang-format hdf5-tools shellcheck help2man)
# For the tests of jobs and hosts: a batch system of one node, network namespaces.
PACKAGES_CLUSTER=(slurm-wlm munge iproute2)
# To check sources: the version that ctest/lint/tidy.py names, which Debian 12 has.
PACKAGES_TIDY=(clang-tidy-19)
# To see the report as a reader does. Ubuntu has it as a snap alone.
PACKAGES_BROWSE=(chromium)

package_installed() {
  [ "$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null)" = "install ok installed" ]
}

# missing_packages PACKAGE...: those that are not installed, one a line.
missing_packages() {
  local package
  for package in "$@"; do
    package_installed "$package" || echo "$package"
  done
  if ! package_installed libhdf5-openmpi-dev && ! package_installed libhdf5-dev; then
    echo libhdf5-openmpi-dev
  fi
}

# as_root COMMAND...: by root or by sudo; fails where neither is at hand. Sudo may ask for a
# password on a terminal, never in a batch job.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif have sudo && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    sudo "$@"
  else
    return 1
  fi
}

# require_tool NAME MINIMUM: at least this version, or an explanation.
require_tool() {
  local name=$1 minimum=$2 version
  version=$("$name" --version 2>/dev/null | sed -n 1p | grep -oE '[0-9]+(\.[0-9]+)+' |
    tail -n 1 || true)
  [ -n "$version" ] || die "$name is missing"
  [ "$(printf '%s\n%s\n' "$minimum" "$version" | sort -V | sed -n 1p)" = "$minimum" ] ||
    die "$name $version is too old: $minimum or newer is needed (Debian 12, Ubuntu 24.04 or newer)"
}

# install_packages GROUP PACKAGE...: one line for the group; what apt says goes to a log, which is
# shown when it fails.
install_packages() {
  local group=$1 log=$STOWAGE_CACHE/packages.log
  shift
  mkdir -p "$STOWAGE_CACHE"
  say "Installing packages to $group: $*"
  { as_root apt-get update -qq &&
    as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get install -qq -y --no-install-recommends "$@"; } >>"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    printf 'error: packages are missing and could not be installed from here (%s):\n' "$log" >&2
    printf '  %s\n' "$@" >&2
    die "ask an administrator for: apt-get install --no-install-recommends $*"
  }
}

# ensure_packages GROUP...: returns with all packages of the groups installed (build, run, test,
# cluster, tidy, browse: the lists above), or ends the script with code 3.
ensure_packages() {
  local group list missing
  for group in "$@"; do
    declare -n list=PACKAGES_${group^^}
    if ! have dpkg-query || ! have apt-get; then
      note "not Debian or Ubuntu: packages to $group are left to you (${list[*]})"
      continue
    fi
    mapfile -t missing < <(missing_packages "${list[@]}")
    [ "${#missing[@]}" -eq 0 ] || install_packages "$group" "${missing[@]}"
  done
  require_tool "${CXX:-c++}" 12
  require_tool cmake 3.25
}
