import type { Family } from '../../util/family.ts';
import { openListener } from './open-listener.ts';
import { openSys } from './sys/sys.ts';

/**
 * A bound TCP socket on a loopback address that may have clients of any address, for a server of the main thread; the
 * caller owns the descriptor. Rejects with the system's error, and where Node cannot make system calls.
 */
export async function transparentSocket(family: Family): Promise<number> {
  const address = family === 4 ? '127.0.0.1' : '::1';
  const sys = await openSys();
  return openListener({ sys }, 'TCP', { address, port: 0, transparent: [] }, {});
}
