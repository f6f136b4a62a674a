import type { Clock } from '../../util/clock.ts';
import {
  PROBES_AT_ONCE,
  USABLE_FIRST_WAIT_MS,
  USABLE_MAX_WAIT_MS,
  USABLE_TIMEOUT_MS,
} from './bounds.ts';

/** Those of the addresses that a socket can be bound to, in their order. */
export async function bindable(
  addresses: readonly string[],
  has: (address: string) => Promise<boolean>,
): Promise<string[]> {
  const found: string[] = [];
  for (let at = 0; at < addresses.length; at += PROBES_AT_ONCE) {
    const some = addresses.slice(at, at + PROBES_AT_ONCE);
    const answers = await Promise.all(some.map(has));
    found.push(...some.filter((_, index) => answers[index]));
  }
  return found;
}

/**
 * Waits until all addresses can be bound, for a limited time: Windows first makes sure that nobody else
 * on the network has them. Resolves with those that cannot.
 */
export async function unusable(
  addresses: readonly string[],
  has: (address: string) => Promise<boolean>,
  clock: Clock,
): Promise<string[]> {
  const end = clock.now() + USABLE_TIMEOUT_MS;
  let rest = addresses;
  for (let wait = USABLE_FIRST_WAIT_MS; ; wait = Math.min(wait * 2, USABLE_MAX_WAIT_MS)) {
    const usable = new Set(await bindable(rest, has));
    rest = rest.filter((address) => !usable.has(address));
    if (rest.length === 0 || clock.now() + wait > end) return [...rest];
    await new Promise<void>((resolve) => clock.setTimer(wait, resolve));
  }
}
