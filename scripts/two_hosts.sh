#!/usr/bin/env bash
# two_hosts.sh N COMMAND...: runs a program on N ranks on each of two "hosts" of this machine:
# network namespaces with host names of their own, which reach each other by an Ethernet pair alone.
# What is wrong between hosts (addresses, shared memory taken for granted, names) shows without a
# cluster. By root. The exit code is that of mpirun, 3 if the machine cannot do it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
PATH=$PATH:/usr/sbin:/sbin  # not everybody's, and where the tools of root lie

case ${1:-} in
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
esac
if [ $# -lt 2 ] || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: two_hosts.sh N COMMAND..." >&2
  exit 2
fi
each=$1
shift
[ "$(id -u)" -eq 0 ] || die "network namespaces are made by root"
for tool in ip unshare mpirun; do
  have "$tool" || die "$tool is missing: apt-get install iproute2 util-linux openmpi-bin"
done

# Names and addresses of this process alone: another one may do the same.
hosts=("stowage-$$-a" "stowage-$$-b")
folder=$(mktemp -d)
remove() {
  for host in "${hosts[@]}"; do ip netns del "$host" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap remove EXIT
for host in "${hosts[@]}"; do
  ip netns add "$host" 2>/dev/null || die "this machine makes no network namespaces"
done
ip link add wire netns "${hosts[0]}" type veth peer name wire netns "${hosts[1]}" ||
  die "this machine makes no Ethernet pairs"
for i in 0 1; do
  ip -n "${hosts[$i]}" addr add "10.77.0.$((i + 1))/24" dev wire
  ip -n "${hosts[$i]}" link set wire up
  ip -n "${hosts[$i]}" link set lo up
done

# on HOST COMMAND...: with a host name of its own, so that MPI sees another machine.
on() {
  local host=$1
  shift
  # shellcheck disable=SC2016  # for the shell within
  ip netns exec "$host" unshare --uts -- sh -c 'hostname "$0"; exec "$@"' "$host" "$@"
}

# What mpirun calls instead of ssh: AGENT HOST COMMAND..., whose words the host's shell reads.
cat >"$folder/agent" <<'A'
#!/bin/sh
host=$1
shift
exec ip netns exec "$host" unshare --uts -- sh -c 'hostname "$0"; eval "$*"' "$host" "$@"
A
chmod +x "$folder/agent"
on "${hosts[0]}" mpirun --allow-run-as-root --oversubscribe --bind-to none \
  --mca plm rsh --mca plm_rsh_agent "$folder/agent" --mca btl self,vader,tcp \
  --mca btl_tcp_if_include wire --mca oob_tcp_if_include wire \
  --host "${hosts[0]}:$each,${hosts[1]}:$each" -np $((2 * each)) "$@"
