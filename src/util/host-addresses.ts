import { networkInterfaces } from 'node:os';

/** An address of the host. */
export interface HostAddress {
  /** IP literal without zone. */
  readonly address: string;
  /** Whether it belongs to a loopback interface. */
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
