import { isIP } from 'node:net';
import { KpngError } from '../../errors.ts';
import { formatHostPort } from '../../util/host-port.ts';
import { listenCode } from '../../util/listen-failure.ts';
import type { Engine } from '../engine.ts';
import type { ListenerStatus, ListenSpec, Protocol } from '../spec.ts';
import type { OwnedListener } from './listener.ts';
import type { ServicePort } from './service-port.ts';
import type { Deadline } from './timers.ts';

export interface Claim {
  readonly slot: Slot;
  readonly owner: ServicePort;
  /** Traffic and source ranges may change; address and port stay. */
  listen: ListenSpec;
}

type SlotState =
  | { readonly kind: 'idle' }
  | {
      readonly kind: 'listening';
      /** The second and further ones have inherited sockets. */
      readonly listeners: readonly OwnedListener[];
      readonly boundPort: number;
      /** The last claim that they were assigned to, with its `listen` at that time. */
      readonly holder: Claim;
      readonly listen: ListenSpec;
    }
  | {
      readonly kind: 'failed';
      readonly holder: Claim;
      /** Ours, and the operating system's. */
      readonly code: string;
      readonly cause: string;
      readonly attempts: number;
      readonly retry: Deadline<Slot>;
    };

/** Protocol, address and port: one socket can listen there. */
export interface Slot {
  readonly key: string;
  readonly protocol: Protocol;
  readonly address: string;
  readonly port: number;
  /** In order of arrival. The first one has it. */
  readonly claims: Claim[];
  state: SlotState;
}

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

/** Undefined before the first attempt. */
export function claimStatus(claim: Claim): ListenerStatus | undefined {
  const { listen, slot } = claim;
  const { state, claims } = slot;
  // Portals give an address to one service port only, but it may have two while it moves.
  if (claims[0] !== claim) {
    return { state: 'failed', listen, code: 'KPNG_PORTAL_CONFLICT', cause: 'EADDRINUSE' };
  }
  if (state.kind === 'idle') return undefined;
  return state.kind === 'listening'
    ? { state: 'listening', listen, boundPort: state.boundPort }
    : { state: 'failed', listen, code: state.code, cause: state.cause };
}

/** Names the address and service port, and the cause: the operating system's code, such as EADDRINUSE. */
export function listenFailure(
  servicePort: string,
  protocol: Protocol,
  { address, port }: ListenSpec,
  reason: unknown,
): { readonly error: KpngError; readonly cause: string } {
  const cause = (reason as NodeJS.ErrnoException).code ?? 'UNKNOWN';
  const target = formatHostPort({ host: address, port });
  const error = new KpngError(
    listenCode(cause),
    `cannot listen on ${target}/${protocol} for ${servicePort}: ${cause}`,
    { cause: reason, servicePort },
  );
  return { error, cause };
}

/** Rejects host names, which the socket API would resolve, and what Node has no way to do. */
export function assertPossible(kind: Engine['kind'], { address, transparent }: ListenSpec): void {
  if (isIP(address) === 0) {
    const message = `${JSON.stringify(address)} is not an IP address`;
    throw Object.assign(new Error(message), { code: 'EINVAL' });
  }
  if (kind === 'linux' || transparent === undefined) return;
  const message = 'transparent sockets need --engine linux';
  throw Object.assign(new Error(message), { code: 'EOPNOTSUPP' });
}
