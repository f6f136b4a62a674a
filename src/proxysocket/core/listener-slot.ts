import type { ListenSpec, Protocol } from '../spec.ts';
import type { ServicePort } from './service-port.ts';

export function addressKey(protocol: Protocol, address: string, port: number): string {
  return `${protocol} ${address} ${port}`;
}

/**
 * The keys of a service port's listeners, in order. A listener on port 0 keeps its kernel-chosen port while the service
 * port has as many of its address and traffic. An address listed twice yields the same key twice.
 */
export function slotKeys(
  owner: Pick<ServicePort, 'name' | 'protocol'>,
  listen: readonly ListenSpec[],
): string[] {
  const { name, protocol } = owner;
  const ordinals = new Map<string, number>();
  return listen.map(({ address, port, traffic, transparent }) => {
    if (protocol === 'TCP' && transparent !== undefined) return `${SHARED} ${address}`;
    if (port !== 0) return addressKey(protocol, address, port);
    const key = `${protocol} ${address} 0 ${name} ${traffic}`;
    const ordinal = ordinals.get(key) ?? 0;
    ordinals.set(key, ordinal + 1);
    return `${key} ${ordinal}`;
  });
}

/** The listeners of a service port, by the key of their slot. Of duplicate addresses the first one counts. */
export function bySlot(
  owner: Pick<ServicePort, 'name' | 'protocol'>,
  listen: readonly ListenSpec[],
): ReadonlyMap<string, ListenSpec> {
  const keys = slotKeys(owner, listen);
  const found = new Map<string, ListenSpec>();
  for (const [index, spec] of listen.entries()) {
    const key = keys[index] ?? '';
    if (!found.has(key)) found.set(key, spec);
  }
  return found;
}

const SHARED = 'shared TCP';

/** Whether several service ports use the socket. */
export function isShared(key: string): boolean {
  return key.startsWith(SHARED);
}
