import { readFileSync } from 'node:fs';
import { parsePortRange, type PortRange } from '../../util/port-range.ts';

const ATTEMPTS = 3;

interface KernelPorts extends PortRange {
  /** Ports that the kernel does not assign because an operator reserved them. */
  readonly reserved: readonly PortRange[];
}

/** Those of this host, where the kernel reports them (Linux). */
export function kernelPortRange(
  read: (path: string) => string = (path) => readFileSync(path, 'latin1'),
): KernelPorts | undefined {
  try {
    const range = read('/proc/sys/net/ipv4/ip_local_port_range').trim().replace(/\s+/, '-');
    const ports = parsePortRange(range);
    const reserved = read('/proc/sys/net/ipv4/ip_local_reserved_ports').split(',');
    return (
      ports && { ...ports, reserved: reserved.flatMap((text) => parsePortRange(text.trim()) ?? []) }
    );
  } catch {
    return undefined;
  }
}

/**
 * Listens on any port of the kernel's range: `previous`, a few random ones, then one chosen by the kernel, which takes
 * Linux 0.5 ms at 10,000 listeners. `open` rejects with the system's error.
 */
export async function listenOnAnyPort(
  open: (port: number) => Promise<void>,
  range: KernelPorts | undefined,
  random: () => number,
  previous?: number,
): Promise<void> {
  const candidates =
    range === undefined ? [] : Array.from({ length: ATTEMPTS }, () => draw(range, random));
  for (const port of [previous, ...candidates]) {
    if (port === undefined) continue;
    try {
      return await open(port);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    }
  }
  return open(0);
}

function draw({ first, last, reserved }: KernelPorts, random: () => number): number | undefined {
  const port = first + Math.floor(random() * (last - first + 1));
  return reserved.some((range) => port >= range.first && port <= range.last) ? undefined : port;
}
