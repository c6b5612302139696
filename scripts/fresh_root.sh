#!/usr/bin/env bash
# fresh_root.sh RELEASE FOLDER [COMMAND...]: makes a root of a Debian release with nothing but its
# base system in FOLDER/RELEASE (debootstrap), clones this checkout's commit into it, and runs the
# commands there, each through bash in the clone.
#
#   scripts/fresh_root.sh trixie roots                        both commands of the README
#   scripts/fresh_root.sh trixie roots scripts/quickstart.sh  one of them
#
# Needs root and debootstrap. Packages come from the archive that this machine is configured with. A
# root that is there is used again: remove it to begin anew. Exit code 1 if a command fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/common.sh

case ${1:-} in
  '' | -h | --help) sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
esac
[ $# -ge 2 ] || die "fresh_root.sh RELEASE FOLDER [COMMAND...]; see --help"
release=$1 folder=$2
shift 2
commands=("$@")
[ $# -gt 0 ] || commands=(scripts/quickstart.sh scripts/test.sh)
[ "$(id -u)" -eq 0 ] || die "a root can only be made by root"
have debootstrap || die "debootstrap is missing: apt-get install debootstrap"
mkdir -p "$folder"
root=$(cd "$folder" && pwd)/$release

make_root() {
  local archive
  archive=$(apt-get indextargets --format '$(SITE)' | sed -n 1p)
  [ -n "$archive" ] || die "no archive of packages is configured here"
  debootstrap --variant=minbase --include=ca-certificates,git "$release" "$root.part" "$archive"
  mv "$root.part" "$root"
}

# What the machine needs to reach the archive and no more; the clone is of the commit, so what is
# not committed is not tried.
clone() {
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  find /etc/apt/apt.conf.d -name '*proxy*' -exec cp {} "$root/etc/apt/apt.conf.d/" \;
  rm -rf "$root/srv/stowage" "$root/srv/stowage.bundle"
  git bundle create "$root/srv/stowage.bundle" HEAD
  chroot "$root" git clone -q /srv/stowage.bundle /srv/stowage
}

in_root() {
  chroot "$root" /usr/bin/env -i HOME=/srv PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
    STOWAGE_JOBS="${STOWAGE_JOBS:-}" bash -c "cd /srv/stowage && $1"
}

# mpirun looks for processes, devices and the topology of cores.
mounted=()
unmount() {
  local place
  for place in "${mounted[@]}"; do umount "$place" || note "$place is still mounted"; done
}
mount_system() {
  local place
  for place in proc sys dev; do
    mount --bind "/$place" "$root/$place" || die "/$place cannot be mounted in $root"
    mounted+=("$root/$place")
  done
  mount -o remount,bind,ro "$root/sys"
}

trap 'unmount; print_phases' EXIT
[ -d "$root" ] || needed_phase "root of $release" 10 make_root
needed_phase "clone" 1 clone
mount_system
for command in "${commands[@]}"; do
  phase "$command" 40 in_root "$command"
done
exit "$PHASE_FAILED"
