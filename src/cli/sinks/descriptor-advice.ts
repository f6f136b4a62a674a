import type { Log } from '../../observe/log.ts';
import { DEFAULT_LIMITS } from '../../proxysocket/limits.ts';

/** From here on the usual reserve leaves most descriptors to clients. */
const ENOUGH = 4 * DEFAULT_LIMITS.reservedDescriptors;

/**
 * Says at the start when the process may have so few files open that it will serve few clients, or
 * none. `limit`: its own limit; `reserve`: what is kept free of it.
 */
export function adviseOnDescriptors(log: Log, limit: number, reserve: number): void {
  const left = Math.max(0, limit - reserve);
  const keys = { limit, reserved: reserve, left };
  if (left === 0) {
    log.error(
      'No file descriptors left for clients; raise ulimit -n or lower --reserved-descriptors',
      {
        ...keys,
        code: 'KPNG_LIMIT_REACHED',
      },
    );
  } else if (limit < ENOUGH) {
    log.warn('Too few file descriptors for many clients; raise ulimit -n', keys);
  }
}
