/**
 * Parses the output of netsh and netstat by numbers, addresses and order: the text is in the system's language and
 * code page.
 */
import { isIPv4, isIPv6 } from 'node:net';
import type { PortRange } from '../../util/port-range.ts';
import { type Exec, ExecError } from '../exec.ts';
import { canonicalAddress } from '../interface/addresses.ts';

/** Addresses in `netsh interface ipv4 show address`: alone behind a label, with their network on the next line. */
export function readIpv4Listing(text: string): string[] {
  const values = text.split(/\r?\n/).map(valueOf);
  return values.filter((value, index) => {
    const next = /^([\d.]+)\/\d{1,2}\b/.exec(values[index + 1] ?? '');
    return isIPv4(value) && isIPv4(next?.[1] ?? '');
  });
}

/** The addresses in the output of `netsh interface ipv6 show addresses`, as a table or in detail. */
export function readIpv6Listing(text: string): string[] {
  const found = text
    .split(/\s+/)
    .map((word) => word.replace(/%.*$/, ''))
    .filter((word) => isIPv6(word));
  return [...new Set(found.map(canonicalAddress))];
}

/** The text after the first colon of a line; some languages use a wide colon. */
function valueOf(line: string): string {
  const at = line.search(/[:：]/);
  return at === -1 ? '' : line.slice(at + 1).trim();
}

/** The reserved ports in the output of `netsh interface ipv4 show excludedportrange`. */
export function readExcludedPorts(text: string): PortRange[] {
  return text.split(/\r?\n/).flatMap((line) => {
    const [, first, last] = /^\s*(\d{1,5})\s+(\d{1,5})\s*\*?\s*$/.exec(line) ?? [];
    const range = { first: Number(first), last: Number(last) };
    const isRange = range.first >= 0 && range.first <= range.last && range.last <= 65_535;
    return first !== undefined && isRange ? [range] : [];
  });
}

/** Local addresses of TCP connections in `netstat -n -p TCP`, without those in TIME_WAIT. */
export function readConnections(text: string): Set<string> {
  const local = new Set<string>();
  for (const line of text.split(/\r?\n/)) {
    const [protocol, here = '', there = '', state = ''] = line.trim().split(/\s+/);
    if (protocol !== 'TCP' || state === 'TIME_WAIT' || there.endsWith(':0')) continue;
    const address = here
      .slice(0, here.lastIndexOf(':'))
      .replace(/^\[|\]$/g, '')
      .replace(/%.*$/, '');
    if (isIPv4(address)) local.add(address);
    else if (isIPv6(address)) local.add(canonicalAddress(address));
  }
  return local;
}

/** Where to log unavailable ports of a range. */
interface Teller {
  info(message: string, keys: Readonly<Record<string, unknown>>): void;
  warn(message: string, keys: Readonly<Record<string, unknown>>): void;
}

/** The ports of a range that Windows has reserved, as Hyper-V does at each boot. None if netsh fails. */
export async function excludedPorts(
  exec: Exec,
  range: PortRange,
  log: Teller,
): Promise<readonly PortRange[]> {
  const found: PortRange[] = [];
  for (const protocol of ['tcp', 'udp']) {
    const args = ['interface', 'ipv4', 'show', 'excludedportrange', `protocol=${protocol}`];
    try {
      const { stdout } = await exec({ file: 'netsh', args });
      found.push(...readExcludedPorts(stdout));
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      log.warn('Reading the ports reserved by Windows failed', { err: error.message });
      return [];
    }
  }
  const within = found
    .map(({ first, last }) => ({
      first: Math.max(first, range.first),
      last: Math.min(last, range.last),
    }))
    .filter(({ first, last }) => first <= last);
  if (within.length > 0) {
    const ports = [...new Set(within.map(({ first, last }) => `${first}-${last}`))];
    log.info('Windows has reserved ports of --port-range; they are not used', { ports });
  }
  return within;
}
