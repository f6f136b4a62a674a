import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Debian packages of commands that have another name. */
const PACKAGES: Readonly<Record<string, string>> = {
  ip: 'iproute2',
  'ip6tables-legacy': 'iptables',
  'iptables-legacy': 'iptables',
  'iptables-nft': 'iptables',
  nft: 'nftables',
  promtool: 'prometheus',
  ss: 'iproute2',
  sysctl: 'procps',
  'systemd-analyze': 'systemd',
  ...Object.fromEntries(
    ['flock', 'nsenter', 'prlimit', 'setpriv', 'unshare'].map((name) => [name, 'util-linux']),
  ),
};

/** Whether a command is on the PATH. */
export function isInstalled(command: string): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, command), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Why what needs the command cannot be done; undefined if it can. */
export function lack(command: string | undefined): string | undefined {
  if (command === undefined || isInstalled(command)) return undefined;
  return `not installed: ${command} (package ${PACKAGES[command] ?? command})`;
}
