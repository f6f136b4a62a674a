/**
 * Whether one version of the state is older than another. Versions are opaque texts, but all servers
 * have numbers for them; anything else is in no order.
 */
export function isOlder(version: string, than: string): boolean {
  if (version === than || !/^\d+$/.test(version) || !/^\d+$/.test(than)) return false;
  return BigInt(version) < BigInt(than);
}
