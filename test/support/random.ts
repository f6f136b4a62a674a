/**
 * So near to 1 that a shuffle leaves the endpoints in the order given. But not always the same, or
 * every test would choose the same port, where the kernel remembers the connections of the last one.
 */
export function almostOne(): number {
  return 0.98 + 0.0199 * Math.random();
}
