#!/usr/bin/env bash
# bundle.sh: packs the sources at a commit with all that their build fetches, so that a machine
# without a network can build, run and accept by the bundle's own run.sh.
#
#   scripts/bundle.sh                    build/stowage-COMMIT.tar.gz, of HEAD
#   scripts/bundle.sh --to FILE.tar.gz
#   scripts/bundle.sh --commit REF       another commit than HEAD
#   scripts/bundle.sh --files FOLDER     take what scripts/bundle/sources.txt lists from there; what
#                                        is missing there is fetched (STOWAGE_CACHE/bundle)
#
# The same commit gives the same bytes. What is fetched is held to the SHA-256 in sources.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/common.sh
source scripts/lib/kokkos.sh
source scripts/lib/text.sh

to='' ref=HEAD folder=$STOWAGE_CACHE/bundle
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
    --to | --commit | --files) [ $# -ge 2 ] || die "$1 needs a value" ;;
    *) die "unknown argument '$1'; see --help" ;;
  esac
  case $1 in
    --to) to=$2 ;;
    --commit) ref=$2 ;;
    --files) folder=$2 ;;
  esac
  shift 2
done
have git || die "git is missing"
commit=$(git rev-parse --verify --quiet "$ref^{commit}") || die "--commit '$ref': no commit"
described=$(git describe --always --tags "$commit")
to=${to:-build/stowage-$described.tar.gz}
top=stowage-$described

# listed: one line for each file: name, kind, package, suite, file, SHA-256.
listed() { sed '/^#/d' scripts/bundle/sources.txt | paste -d ' ' - -; }

holds() { [ "$(sha256sum "$1" 2>/dev/null | cut -c1-64)" = "$2" ]; }

fetch_missing() {
  local name kind package suite file sum more
  mkdir -p "$folder"
  while read -r name kind package suite file sum; do
    holds "$folder/$file" "$sum" && continue
    say "Fetching $file ($name)"
    case $kind in source) more=deb-src ;; *) more=deb ;; esac
    fetch_source "$package" "$suite" "$folder" "$more" </dev/null ||
      note "the package '$package' of '$suite' cannot be fetched from here"
    [ -f "$folder/$file" ] || die "$folder/$file is missing: put it there (SHA-256 $sum)"
    holds "$folder/$file" "$sum" || die "$folder/$file: its SHA-256 is not $sum"
  done < <(listed)
}

# packed FOLDER FILE.tar.gz: the same bytes of the same files.
packed() {
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w \
    -C "$(dirname "$1")" -cf - "$(basename "$1")" | gzip -9n >"$2"
}

# sums FOLDER: the SHA-256 of all files in it, as a file in it.
sums() {
  (cd "$1" && find . -type f ! -path './SHA256SUMS*' -printf '%P\0' | LC_ALL=C sort -z |
    xargs -0 sha256sum >SHA256SUMS.part && mv SHA256SUMS.part SHA256SUMS)
}

add_dependencies() {
  local into=$1 name kind package suite file sum
  mkdir -p "$into" "$work/headers"
  while read -r name kind package suite file sum; do
    case $name.$kind in
      kokkos.source)
        mkdir -p "$work/orig" && ln -sf "$(cd "$folder" && pwd)/$file" "$work/orig/"
        unpack_kokkos "$work/orig" "$work/kokkos" || die "$file: no Kokkos in it"
        packed "$work/kokkos" "$into/kokkos.tar.gz" ;;
      *.source) cp "$folder/$file" "$into/$name.tar${file##*.tar}" ;;
      *.headers) dpkg-deb -x "$folder/$file" "$work/headers" ;;
    esac
  done < <(listed)
  find "$work/headers" -name '*.so*' -delete
  packed "$work/headers/usr" "$into/headers.tar.gz"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
have dpkg-deb || die "dpkg-deb is missing: a bundle is made on Debian or Ubuntu"
ensure_text
fetch_missing
say "Packing $top"
mkdir -p "$work/$top/stowage"
git archive "$commit" | tar -x -C "$work/$top/stowage"
echo "$described" >"$work/$top/stowage/COMMIT"
sums "$work/$top/stowage"
install -D -m 644 data/kjv.txt "$work/$top/stowage/data/kjv.txt"
add_dependencies "$work/$top/sources"
install -m 755 "$work/$top/stowage/scripts/bundle/run.sh" "$work/$top/run.sh"
sums "$work/$top"
mkdir -p "$(dirname "$to")"
packed "$work/$top" "$work/bundle.tar.gz"
mv "$work/bundle.tar.gz" "$to"
say "$to: $(stat -c %s "$to") bytes, SHA-256 $(sha256sum "$to" | cut -c1-64)"
note "there: tar xf $(basename "$to") && $top/run.sh"
