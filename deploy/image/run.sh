#!/usr/bin/env bash
# Runs the program of an image, unpacked in a folder, as a container with a read-only root and few capabilities, and shows that it
# proxies, minds signals and ends with the right code. Part of try.sh.
#
#     deploy/image/run.sh FOLDER slim|full
set -euo pipefail
root=$1 target=$2
bundle=$(mktemp -d /tmp/kpng-bundle.XXXXXX)
name=kpng-image-$$
cleanup() {
  crun --root "$bundle/crun" --cgroup-manager disabled delete -f "$name" >/dev/null 2>&1 || true
  rm -rf "$bundle"
}
trap cleanup EXIT
mkdir "$bundle/state" "$bundle/crun"
cat >"$bundle/state/state.yaml" <<'YAML'
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
  portal=address uid=65532 caps='[]'
else
  portal=nftables uid=0 caps='["CAP_NET_ADMIN","CAP_NET_RAW"]'
fi

# The runtime's own network namespace: rules are written in there, never on the machine.
cat >"$bundle/config.json" <<JSON
{
  "ociVersion": "1.0.2",
  "process": {
    "terminal": false, "user": {"uid": $uid, "gid": $uid}, "cwd": "/", "noNewPrivileges": true,
    "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
    "args": ["/usr/bin/tini", "--", "/usr/local/bin/kpng-userspace", "file", "--input", "/state/state.yaml",
      "to-local", "to-userspace", "--node-name", "n1", "--portal", "$portal", "--logging-format", "json",
      "--drain-timeout", "1h"],
    "capabilities": {"bounding": $caps, "effective": $caps, "permitted": $caps, "inheritable": []}
  },
  "root": {"path": "$root", "readonly": true},
  "mounts": [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
    {"destination": "/state", "type": "bind", "source": "$bundle/state", "options": ["bind", "ro"]}
  ],
  "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "network"}, {"type": "ipc"}]}
}
JSON
container() { crun --root "$bundle/crun" --cgroup-manager disabled "$@"; }
# Inside its network namespace, with the Node of the image.
inside() { nsenter --net="/proc/$pid/ns/net" "$root/usr/local/bin/node" -e "$1"; }
# Waits up to 20 seconds for a line of the log.
saw() {
  for _ in $(seq 200); do
    grep -q "$1" "$bundle/log" && return
    sleep 0.1
  done
  echo "no line $1 in:" && cat "$bundle/log" && return 1
}

ip netns list >/dev/null
container run -b "$bundle" "$name" >"$bundle/log" 2>&1 &
job=$!
saw 'Starting'
pid=$(container state "$name" | sed -n 's/.*"pid": \([0-9]*\).*/\1/p')
nsenter --net="/proc/$pid/ns/net" ip link set lo up
saw 'The first complete state is in place'
echo "process 1 is $(cat /proc/$pid/comm); $(grep -E 'CapEff|NoNewPrivs' /proc/$pid/status | tr -s '\t\n' '  ')"
inside '
  const net = require("node:net");
  net.createServer((socket) => socket.pipe(socket)).listen(18081, "127.0.0.1", () => {
    const client = net.connect(18080, "127.77.0.10", () => client.write("through the proxy"));
    client.on("data", (data) => { console.log(String(data)); process.exit(); });
    client.on("error", (error) => { console.log(error.message); process.exit(1); });
  });'
[[ $target == slim ]] || nsenter --net="/proc/$pid/ns/net" nft list tables
if container exec "$name" sh -c 'echo > /written' 2>/dev/null; then
  echo 'the root file system can be written to' && exit 1
fi
container kill "$name" TERM
saw '"signal":"SIGTERM"'
code=0 && wait "$job" || code=$?
echo "ended with $code after TERM"
[[ $code == 0 ]]
