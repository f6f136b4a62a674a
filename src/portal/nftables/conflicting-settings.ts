import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Settings of this host that keep packets from transparent sockets, each as a sentence that names the setting.
 * `isBridged`: whether bridges have interfaces, or may get some.
 */
export function conflictingSettings(root = '/', isBridged = hasBridge(root)): string[] {
  const isOn = (setting: string): boolean => {
    try {
      return readFileSync(join(root, 'proc/sys', setting), 'utf8').trim() === '1';
    } catch {
      // The kernel lacks that feature.
      return false;
    }
  };
  const found: string[] = [];
  for (const setting of ['bridge-nf-call-iptables', 'bridge-nf-call-ip6tables']) {
    if (!isOn(`net/bridge/${setting}`) || !isBridged) continue;
    found.push(
      `TCP clients behind a bridge of this host get no connection: set the sysctl net.bridge.${setting} to 0, ` +
        'unless no client of services is behind one',
    );
  }
  const marked = interfaces(root).find((name) => isOn(`net/ipv4/conf/${name}/src_valid_mark`));
  if (marked !== undefined) {
    // As sysctl writes names that have dots.
    const name = marked.replaceAll('.', '/');
    found.push(
      'the kernel drops packets from outside as coming from a wrong address: set the sysctl ' +
        `net.ipv4.conf.${name}.src_valid_mark to 0`,
    );
  }
  return found;
}

/** What has settings for IPv4: all interfaces at once, each by itself, and those to come (`default`). */
function interfaces(root: string): string[] {
  // What the host sends to itself is not checked.
  const names = filesIn(join(root, 'proc/sys/net/ipv4/conf')).filter((name) => name !== 'lo');
  return names.sort((a, b) => Number(b === 'all') - Number(a === 'all'));
}

function hasBridge(root: string): boolean {
  const folder = join(root, 'sys/class/net');
  return filesIn(folder).some((name) => filesIn(join(folder, name, 'brif')).length > 0);
}

/** None if there is no such folder; an interface may go at any time. */
function filesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
