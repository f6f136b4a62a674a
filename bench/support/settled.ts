import { setTimeout as wait } from 'node:timers/promises';

/**
 * Looks at a figure until it has stayed within 0.5 % for half a second, for at most four seconds, and
 * resolves with it. For memory, which a garbage collector gives back when it has the time.
 */
export async function settled(read: () => number): Promise<number> {
  let last = read();
  for (let quiet = 0, looks = 0; quiet < 2 && looks < 16; looks += 1) {
    await wait(250);
    const now = read();
    quiet = Math.abs(now - last) < last / 200 ? quiet + 1 : 0;
    last = now;
  }
  return last;
}
