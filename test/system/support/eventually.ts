import { setTimeout as wait } from 'node:timers/promises';

/** Polls every 50 ms until the condition holds; the deadline only bounds a failing test. */
export async function eventually(look: () => boolean | Promise<boolean>): Promise<boolean> {
  const end = performance.now() + 20_000;
  while (performance.now() < end) {
    if (await look()) return true;
    await wait(50);
  }
  return false;
}
