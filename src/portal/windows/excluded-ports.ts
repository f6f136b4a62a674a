import type { PortRange } from '../../util/port-range.ts';
import { ExecError, type Exec } from '../exec.ts';
import { NETSH_TIMEOUT_MS } from './bounds.ts';
import { readExcludedPorts } from './listing.ts';

/** Where it is told that ports of a range cannot be had. */
interface Teller {
  info(message: string, keys: Readonly<Record<string, unknown>>): void;
  warn(message: string, keys: Readonly<Record<string, unknown>>): void;
}

/**
 * The ports within a range that Windows has reserved for TCP or UDP; listening on them is refused. Hyper-V
 * and others reserve blocks of them at each boot. When netsh cannot tell, none count as reserved.
 */
export async function excludedPorts(
  exec: Exec,
  range: PortRange,
  log: Teller,
): Promise<readonly PortRange[]> {
  const found: PortRange[] = [];
  for (const protocol of ['tcp', 'udp']) {
    const args = ['interface', 'ipv4', 'show', 'excludedportrange', `protocol=${protocol}`];
    try {
      const { stdout } = await exec({ file: 'netsh', args, timeoutMs: NETSH_TIMEOUT_MS });
      found.push(...readExcludedPorts(stdout));
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      log.warn('It is not known which ports Windows has reserved', { err: error.message });
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
    log.info('Windows has reserved ports of --port-range, which are left out', { ports });
  }
  return within;
}
