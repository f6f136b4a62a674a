import type { ListenSpec, Protocol } from '../spec.ts';

/** Opens the sockets of listeners in Node's place, where they are shared, or outlive whoever has opened them. */
export interface ListenerSockets {
  /** Descriptors that each of them takes. */
  readonly descriptors: number;
  /** A socket that is bound, and a TCP one listens. Throws the system's error. */
  open(protocol: Protocol, listen: Pick<ListenSpec, 'address' | 'port' | 'group'>): OpenedSocket;
}

export interface OpenedSocket {
  /** For Node, which closes it. */
  readonly fd: number;
  /** To be called when the listener closes, or did not come about. Idempotent. */
  release(): void;
}
