#!/usr/bin/env bash
# slurm_node.sh: a batch system of one node on this machine, for tests: munge, slurmctld and slurmd
# as root, without systemd, everything in one folder and on ports of its own.
#
#   scripts/slurm_node.sh start FOLDER    prints the path of its slurm.conf: export SLURM_CONF
#   scripts/slurm_node.sh stop FOLDER
#
# The node says that it has two GPUs, so that scripts for GPUs can be tried; there are no devices
# behind them. Jobs of partition `main` are preempted by those of `urgent` and put back into the
# queue. A job that was put back waits 5 s, not the usual 120. Jobs keep the niceness of `sbatch`.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
PATH=$PATH:/usr/sbin:/sbin  # not everybody's, and where the tools of root lie

start_seconds=20
stop_seconds=20

free_ports() {
  python3 - <<'P'
import socket
held = [socket.socket() for _ in range(2)]
for one in held:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in held))
P
}

write_config() {
  local folder=$1 host controller daemon memory cpus
  host=$(hostname -s)
  cpus=$(getconf _NPROCESSORS_ONLN)
  cpus=$((cpus > 2 ? cpus : 2))  # two ranks share one where there is no other
  read -r controller daemon < <(free_ports)
  memory=$(awk '/MemTotal/ {print int($2 / 1024 / 2)}' /proc/meminfo)
  cat >"$folder/slurm.conf" <<C
ClusterName=one_node
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller
SlurmdPort=$daemon
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
TmpFS=$folder/tmp
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
SlurmdParameters=config_overrides
TaskPlugin=task/affinity
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=10
PropagatePrioProcess=1
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=$memory Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=60 State=UP PriorityTier=1 GraceTime=30
PartitionName=urgent Nodes=$host MaxTime=60 State=UP PriorityTier=2
C
  # Slurm counts device files: these two are everywhere.
  printf 'Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n' >"$folder/gres.conf"
}

idle() { [ "$(sinfo -h -o %T -p main 2>/dev/null)" = idle ]; }

start() {
  local folder=$1 i
  [ "$(id -u)" -eq 0 ] || die "a batch system is started by root"
  for tool in munged slurmctld slurmd sinfo; do
    have "$tool" || die "$tool is missing: apt-get install slurm-wlm munge"
  done
  mkdir -p "$folder"/state "$folder"/spool "$folder"/tmp
  chmod 755 "$folder"
  (umask 077 && head -c 1024 /dev/urandom >"$folder/munge.key")
  munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
    --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" \
    --seed-file="$folder/munge.seed" 2>"$folder/munged.err" ||
    die "munged does not start: $(tail -n 3 "$folder/munged.err")"
  write_config "$folder"
  export SLURM_CONF=$folder/slurm.conf
  slurmctld -f "$SLURM_CONF" || die "slurmctld does not start: see $folder/slurmctld.log"
  slurmd -f "$SLURM_CONF" || die "slurmd does not start: see $folder/slurmd.log"
  for ((i = 0; i < 10 * start_seconds; ++i)); do
    idle && echo "$SLURM_CONF" && return 0
    sleep 0.1
  done
  stop "$folder"
  die "no node is idle after $start_seconds s: see $folder/slurmctld.log and slurmd.log"
}

# By the ids that the daemons themselves have written; returns when they are gone.
stop() {
  local folder=$1 file i pids=()
  for file in slurmd slurmctld munged; do
    [ ! -f "$folder/$file.pid" ] || pids+=("$(cat "$folder/$file.pid")")
  done
  for ((i = 0; i < 10 * stop_seconds; ++i)); do
    kill -TERM "${pids[@]}" 2>/dev/null || return 0  # until none is left to be told
    sleep 0.1
  done
  die "daemons ${pids[*]} do not end: see the logs in $folder"
}

case ${1:-} in
  start | stop)
    [ $# -eq 2 ] || die "usage: slurm_node.sh $1 FOLDER"
    mkdir -p "$2"
    "$1" "$(cd "$2" && pwd)"
    ;;
  -h | --help) sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" ;;
  *) die "usage: slurm_node.sh start|stop FOLDER" ;;
esac
