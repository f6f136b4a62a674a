import { takeInherited } from '../proxysocket/core/inherited.ts';
import type { HostPort } from '../util/host-port.ts';

/** Every address of the host, as the kernel writes it, with and without IPv6. */
const EVERYWHERE = ['::', '0.0.0.0'];

/** The socket of an HTTP server that the previous process handed over, if any. */
export function inheritServer({ host, port }: HostPort): number | undefined {
  for (const address of host === '' ? EVERYWHERE : [host]) {
    const fd = takeInherited('TCP', address, port);
    if (fd !== undefined) return fd;
  }
  return undefined;
}
