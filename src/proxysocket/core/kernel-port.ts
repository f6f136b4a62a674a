import { readFileSync } from 'node:fs';
import type { PortRange } from '../../util/port-range.ts';
import type { Listener } from './service-port.ts';

/** Ports tried by chance before the kernel is asked for a free one. */
const ATTEMPTS = 3;

/**
 * Ports that the kernel gives to those who ask for any, where it says so (Linux). Nothing else is
 * meant to listen there.
 */
export function kernelPortRange(): PortRange | undefined {
  if (process.platform !== 'linux') return undefined;
  try {
    const text = readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'latin1');
    const [first = Number.NaN, last = Number.NaN] = text.trim().split(/\s+/).map(Number);
    return first >= 1 && last >= first && last <= 65_535 ? { first, last } : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Listens on any port of the kernel's range.
 *
 * Asking the kernel (port 0) is slow once some thousand ports are taken: Linux then walks through half
 * of its range for each socket, 0.5 ms at 10,000 listeners and more beyond. So this tries a few
 * ports by chance first, which is right the first time as long as most are free.
 *
 * `open` listens on a given port and rejects with the system's error. `former` is tried before all
 * others.
 */
export async function listenOnAnyPort(
  open: (port: number) => Promise<Listener>,
  range: PortRange | undefined,
  random: () => number,
  former?: number,
): Promise<Listener> {
  if (former !== undefined) {
    try {
      return await open(former);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    }
  }
  if (range === undefined) return open(0);
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    const port = range.first + Math.floor(random() * (range.last - range.first + 1));
    try {
      return await open(port);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    }
  }
  return open(0);
}
