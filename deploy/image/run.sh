#!/usr/bin/env bash
# Runs the program of an image, unpacked in a folder, the way a container runtime would: process 1 of its own namespaces, a read-only
# root, few capabilities, no new privileges. Shows that it proxies, minds TERM and ends with 0. Part of try.sh; as root.
#
#     deploy/image/run.sh FOLDER slim|full
set -euo pipefail
root=$1 target=$2
work=$(mktemp -d /tmp/kpng-run.XXXXXX)
unshare_pid=
cleanup() {
  if [[ -n $unshare_pid ]]; then kill -9 "$unshare_pid" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap cleanup EXIT
cat >"$work/state.yaml" <<'YAML'
nodes: [{name: n1}]
services:
- service:
    name: echo
    ips: {clusterips: {v4: [127.77.0.10]}}
    ports: [{name: tcp, protocol: 1, port: 18080, targetport: 18081}]
  endpoints:
  - endpoint: {ips: {v4: [127.0.0.1]}}
    topology: {node: n1}
YAML
if [[ $target == slim ]]; then
  portal=address
  limits=(--reuid=65532 --regid=65532 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs)
else
  portal=nftables
  limits=('--bounding-set=-all,+net_admin,+net_raw' --inh-caps=-all --no-new-privs)
fi

# Its own network: rules are written in there, never on the machine. The new process 1 sets everything up and becomes tini.
# shellcheck disable=SC2016 # it is the new process that fills in these variables
inside='
  set -e
  mount --make-rprivate /
  mount --bind "$1" "$1"
  mount -t proc proc "$1/proc"
  mount --rbind /dev "$1/dev"
  mount -t tmpfs tmpfs "$1/mnt"
  cp "$2/state.yaml" "$1/mnt/"
  mount -o remount,ro,bind "$1"
  ip link set lo up
  root=$1
  shift 2
  exec chroot "$root" /usr/bin/setpriv "$@"'
unshare --net --pid --mount --ipc --fork --kill-child bash -c "$inside" run "$root" "$work" "${limits[@]}" \
  /usr/bin/tini -- /usr/local/bin/kpng-userspace file --input /mnt/state.yaml to-local to-userspace --node-name n1 \
  --portal "$portal" --logging-format json --drain-timeout 1h >"$work/log" 2>&1 &
unshare_pid=$!

# Waits up to 30 seconds for a line of the log.
saw() {
  for _ in $(seq 300); do
    grep -q "$1" "$work/log" && return
    sleep 0.1
  done
  echo "no line $1 in:" && cat "$work/log" && return 1
}
saw 'The first complete state is in place'
pid=$(cat "/proc/$unshare_pid/task/$unshare_pid/children")
pid=${pid%% *}
program=$(cat "/proc/$pid/task/$pid/children")
program=${program%% *}
[[ $(cat "/proc/$pid/comm") == tini ]]
# NET_ADMIN and NET_RAW are bits 12 and 13.
if [[ $target == slim ]]; then expected='65532 0000000000000000 1'; else expected='0 0000000000003000 1'; fi
granted=$(awk '/^(Uid|CapEff|NoNewPrivs):/ { printf "%s%s", separator, $2; separator = " " }' "/proc/$program/status")
echo "process 1 is tini; user, capabilities, no new privileges: $granted"
[[ $granted == "$expected" ]]
# shellcheck disable=SC2016
nsenter --net="/proc/$pid/ns/net" "$root/usr/local/bin/node" -e '
  (async () => {
    for (const path of ["healthz", "livez", "readyz"]) {
      const { status } = await fetch(`http://127.0.0.1:10256/${path}`);
      console.log(`/${path}: ${status}`);
      if (status !== 200) process.exit(1);
    }
  })();'
nsenter --net="/proc/$pid/ns/net" "$root/usr/local/bin/node" -e '
  const net = require("node:net");
  net.createServer((socket) => socket.pipe(socket)).listen(18081, "127.0.0.1", () => {
    const client = net.connect(18080, "127.77.0.10", () => client.write("through the proxy"));
    client.on("data", (data) => { console.log(String(data)); process.exit(); });
    client.on("error", (error) => { console.log(error.message); process.exit(1); });
  });'
if [[ $target == full ]]; then nsenter --net="/proc/$pid/ns/net" nft list tables | grep kpng-userspace; fi
# shellcheck disable=SC2016
if nsenter --mount="/proc/$pid/ns/mnt" sh -c 'echo > "$1/written"' sh "$root" 2>/dev/null; then
  echo 'the root file system can be written to' && exit 1
fi
kill -TERM "$pid"
saw '"signal":"SIGTERM"'
code=0
wait "$unshare_pid" || code=$?
unshare_pid=
echo "ended with $code after TERM to process 1"
[[ $code == 0 ]]
