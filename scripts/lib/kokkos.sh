# shellcheck shell=bash
# Kokkos (host execution spaces only) built from the distribution's source package into the cache.
# Source common.sh first. Used by scripts/build_kokkos.sh, which CMake also runs.
#
# Why this way: the packages of the stable distributions have no Kokkos of their own with OpenMP.
# Their `trilinos` source package contains Kokkos 3.4; later releases have a `kokkos` package.

# Settings that change the built library; a change of any of them gives another cache folder.
KOKKOS_CMAKE_ARGS=(
  -DCMAKE_BUILD_TYPE=Release
  -DBUILD_SHARED_LIBS=OFF
  -DCMAKE_POSITION_INDEPENDENT_CODE=ON
  -DKokkos_ENABLE_SERIAL=ON
  -DKokkos_ENABLE_OPENMP=ON
  "-DCMAKE_CXX_FLAGS=-include cstdint" # 3.4 leaves it out; gcc 13 and newer insist
)

# apt_archive: prints "KEYRING URI COMPONENT" of the distribution's own archive, read from the
# machine's apt configuration; fails where there is none.
apt_archive() {
  local id keyring pattern component file
  id=$(. /etc/os-release && echo "${ID:-}")
  case $id in
    debian) keyring=debian-archive-keyring.gpg pattern='/debian/?$' component=main ;;
    ubuntu) keyring=ubuntu-archive-keyring.gpg pattern='/ubuntu/?$' component=universe ;;
    *) return 1 ;;
  esac
  local files=()
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{sources,list}; do
    [ -f "$file" ] && files+=("$file")
  done
  [ "${#files[@]}" -gt 0 ] || return 1
  local uri
  uri=$(awk '/^[[:space:]]*#/ {next}
    tolower($1) == "uris:" {for (i = 2; i <= NF; i++) print $i}
    $1 == "deb" || $1 == "deb-src" {for (i = 2; i <= NF; i++) if ($i ~ /^[a-z+]+:\/\//) print $i}' \
    "${files[@]}" | grep -E "$pattern" | sed -n 1p)
  [ -n "$uri" ] || return 1
  echo "/usr/share/keyrings/$keyring $uri $component"
}

# fetch_source PACKAGE SUITE FOLDER [deb]: downloads a source package, or with `deb` a binary one,
# with a private apt state, so that /etc/apt stays untouched and no root is needed.
fetch_source() {
  local package=$1 suite=$2 dest=$3 kind=${4:-deb-src} archive keyring uri component root
  local get=(source --download-only -qq)
  [ "$kind" = deb-src ] || get=(download -qq)
  archive=$(apt_archive) || return 1
  read -r keyring uri component <<<"$archive"
  root=$(mktemp -d) && mkdir -p "$root/lists/partial" "$root/cache/archives/partial" "$dest"
  echo "$kind [signed-by=$keyring] $uri $suite $component" >"$root/sources.list"
  local options=(
    -o "Dir::State::Lists=$root/lists" -o "Dir::Cache=$root/cache"
    -o "Dir::Etc::SourceList=$root/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o APT::Get::List-Cleanup=0 -o Acquire::Languages=none)
  [ "$(id -u)" -ne 0 ] || options+=(-o APT::Sandbox::User=root)
  local rc=0
  { apt-get "${options[@]}" update -qq &&
    (cd "$dest" && apt-get "${options[@]}" "${get[@]}" "$package"); } >&2 || rc=1
  rm -rf "$root"
  return "$rc"
}

# unpack_kokkos FOLDER_OF_TARBALLS SOURCE: the Kokkos tree out of a kokkos or trilinos tarball.
unpack_kokkos() {
  local from=$1 source=$2 tarball inside
  mkdir -p "$source"
  tarball=$(find "$from" -name '*.orig.tar.*' ! -name '*.asc' | sed -n 1p)
  case $(basename "$tarball") in
    trilinos_*)
      inside=$(tar tf "$tarball" | grep -m1 -E '/packages/kokkos/CMakeLists.txt$' || true)
      inside=${inside%/CMakeLists.txt}
      [ -n "$inside" ] || return 1
      tar xf "$tarball" -C "$source" --strip-components=3 "$inside"
      ;;
    kokkos_*) tar xf "$tarball" -C "$source" --strip-components=1 ;;
    *) return 1 ;;
  esac
}

# kokkos_version SOURCE: "3.4.1" read from its CMakeLists.txt.
kokkos_version() {
  local part out=()
  for part in MAJOR MINOR PATCH; do
    out+=("$(sed -n "s/^ *set *(Kokkos_VERSION_$part \([0-9]*\)).*/\1/Ip" "$1/CMakeLists.txt" |
      sed -n 1p | sed 's/^0*\(.\)/\1/')")
  done
  (IFS=. && echo "${out[*]}")
}

# obtain_kokkos_source SOURCE: tries the package itself, then Trilinos, in this release and then in
# the last release known to carry a suitable one.
obtain_kokkos_source() {
  local source=$1 id codename candidate package suite download
  id=$(. /etc/os-release && echo "${ID:-}")
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  local candidates=("trilinos $codename" "kokkos $codename")
  case $id in
    debian) candidates+=("trilinos bookworm") ;;
    ubuntu) candidates+=("trilinos noble" "trilinos jammy") ;;
  esac
  download=$(mktemp -d)
  for candidate in "${candidates[@]}"; do
    read -r package suite <<<"$candidate"
    [ -n "$suite" ] || continue
    note "looking for the source package '$package' in '$suite'"
    if fetch_source "$package" "$suite" "$download/$package-$suite" &&
      unpack_kokkos "$download/$package-$suite" "$source"; then
      rm -rf "$download"
      return 0
    fi
  done
  rm -rf "$download"
  return 1
}

# cached_kokkos: the prefix of a finished build made by this compiler with these settings.
cached_kokkos() {
  local key prefix
  key=$(kokkos_cache_key)
  for prefix in "$STOWAGE_CACHE"/kokkos-*-"$key"; do
    [ -f "$prefix/stowage.complete" ] && { echo "$prefix"; return 0; }
  done
  return 1
}

kokkos_cache_key() {
  { "${CXX:-c++}" --version | sed -n 1p; printf '%s\n' "${KOKKOS_CMAKE_ARGS[@]}"; uname -m; } |
    sha256sum | cut -c1-10
}

# build_kokkos SOURCE BUILD: configures, builds and installs; prints the prefix. The marker is
# written last, so an interrupted build is never taken for a library.
build_kokkos() {
  local source=$1 build=$2 version prefix standard=17 generator=Ninja
  have ninja || generator="Unix Makefiles"
  version=$(kokkos_version "$source")
  prefix=$STOWAGE_CACHE/kokkos-$version-$(kokkos_cache_key)
  # Kokkos 5 needs C++20; older ones build faster as C++17, which serves C++20 programs as well.
  [ "${version%%.*}" -lt 5 ] || standard=20
  rm -rf "$prefix"
  {
    cmake -G "$generator" -S "$source" -B "$build" "${KOKKOS_CMAKE_ARGS[@]}" \
      -DCMAKE_CXX_STANDARD=$standard -DKokkos_CXX_STANDARD=$standard \
      -DCMAKE_CXX_COMPILER="${CXX:-c++}" \
      -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib &&
      cmake --build "$build" --parallel "$(jobs_for_build)" &&
      cmake --install "$build" && touch "$prefix/stowage.complete"
  } >"$build.log" 2>&1 || {
    tail -n 30 "$build.log" >&2
    return 1
  }
  echo "$prefix"
}

# ensure_kokkos: prints the prefix of a usable Kokkos, building it if the cache has none. Of several
# processes that ask at the same time, one builds and the others wait.
ensure_kokkos() {
  local work rc=0
  mkdir -p "$STOWAGE_CACHE"
  exec 9>"$STOWAGE_CACHE/lock"
  flock 9
  if cached_kokkos; then
    return 0
  fi
  say "Building Kokkos (once for this compiler; half a minute on two cores)"
  work=$(mktemp -d)
  obtain_kokkos_source "$work/source" && build_kokkos "$work/source" "$work/build" || rc=1
  rm -rf "$work"
  return "$rc"
}
