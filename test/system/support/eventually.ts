import { setTimeout as wait } from 'node:timers/promises';

/** Looks every 50 ms until it is so; the deadline decides only how long a failing test takes. */
export async function eventually(look: () => boolean | Promise<boolean>): Promise<boolean> {
  const end = performance.now() + 20_000;
  while (performance.now() < end) {
    if (await look()) return true;
    await wait(50);
  }
  return false;
}
