import type { Backoff } from '../../util/backoff.ts';
import type { ListenFailure } from './listen-error.ts';
import type { Listener, ServicePort } from './service-port.ts';
import type { ListenerStatus, ListenSpec, Protocol } from '../spec.ts';

/** A service port that wants to listen on an address. */
export interface Claim {
  readonly slot: Slot;
  readonly owner: ServicePort;
  /** Traffic and source ranges may change; address and port stay. */
  listen: ListenSpec;
  /** Whether it was reported that another service port has the address. */
  conflictReported: boolean;
}

export type SlotState =
  /** Not tried yet. */
  | { readonly kind: 'idle' }
  | {
      readonly kind: 'listening';
      readonly listener: Listener;
      /** The claim that the listener was given to last, with its `listen` of then. */
      readonly holder: Claim;
      readonly listen: ListenSpec;
    }
  | {
      readonly kind: 'failed';
      /** For whom it was tried. */
      readonly holder: Claim;
      readonly failure: ListenFailure;
      readonly backoff: Backoff;
    };

/** Protocol, address and port: one socket can listen there. */
export interface Slot {
  readonly key: string;
  readonly protocol: Protocol;
  readonly address: string;
  readonly port: number;
  /** In the order in which they came. The first one has it. */
  readonly claims: Claim[];
  state: SlotState;
}

export function newSlot(key: string, protocol: Protocol, { address, port }: ListenSpec): Slot {
  return { key, protocol, address, port, claims: [], state: { kind: 'idle' } };
}

/** An address and port of a protocol, as one text. */
export function placeKey(protocol: Protocol, address: string, port: number): string {
  return `${protocol} ${address} ${port}`;
}

/**
 * The keys of a service port's listeners, in order.
 *
 * Port 0 is not shared: each such listener belongs to its service port, and keeps its
 * kernel-chosen port while the service port keeps as many of its address and traffic. The same address
 * listed twice yields the same key twice.
 */
export function slotKeys(
  owner: Pick<ServicePort, 'name' | 'protocol'>,
  listen: readonly ListenSpec[],
): string[] {
  const { name, protocol } = owner;
  const ordinals = new Map<string, number>();
  return listen.map(({ address, port, traffic }) => {
    if (port !== 0) return placeKey(protocol, address, port);
    const key = `${protocol} ${address} 0 ${name} ${traffic}`;
    const ordinal = ordinals.get(key) ?? 0;
    ordinals.set(key, ordinal + 1);
    return `${key} ${ordinal}`;
  });
}

/** Undefined before it was tried. */
export function claimStatus(claim: Claim): ListenerStatus | undefined {
  const { listen, slot } = claim;
  const { state, claims } = slot;
  if (claims[0] !== claim) {
    return { state: 'failed', listen, code: 'KPNG_PORTAL_CONFLICT', cause: 'EADDRINUSE' };
  }
  switch (state.kind) {
    case 'idle':
      return undefined;
    case 'listening':
      return { state: 'listening', listen, boundPort: state.listener.boundPort };
    case 'failed': {
      const { error, cause } = state.failure;
      return { state: 'failed', listen, code: error.code, cause };
    }
    default:
      return state satisfies never;
  }
}
