import { networkInterfaces } from 'node:os';

export interface HostAddress {
  /** IP literal without zone. */
  readonly address: string;
  readonly loopback: boolean;
}

/** The addresses of the host's interfaces that are up, from Node. Empty in a sandbox that hides the interfaces. */
export function hostAddresses(read: typeof networkInterfaces = networkInterfaces): HostAddress[] {
  let interfaces: ReturnType<typeof networkInterfaces>;
  try {
    interfaces = read();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ERR_SYSTEM_ERROR') return [];
    throw error;
  }
  return Object.values(interfaces)
    .flatMap((list) => list ?? [])
    .map(({ address, internal }) => ({ address, loopback: internal }));
}

/** How old the addresses of the host may be where a client is compared with them. Milliseconds. */
const MAX_AGE_MS = 2000;

let known: { readonly addresses: ReadonlySet<string>; readonly readAt: number } | undefined;

/** Whether an IP literal is an address of this host, as far as is known from at most two seconds ago. */
export function isHostAddress(address: string): boolean {
  if (address === '::1' || address.startsWith('127.')) return true;
  const now = performance.now();
  if (known === undefined || now - known.readAt > MAX_AGE_MS) {
    const addresses = new Set(hostAddresses().map((each) => each.address));
    known = { addresses, readAt: now };
  }
  return known.addresses.has(address);
}
