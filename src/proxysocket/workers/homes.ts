import type { ServicePortSpec } from '../spec.ts';
import { isWildcard } from './listeners.ts';

/** How clients get to engines. */
export interface Steering {
  /** Whether the kernel leads all clients of one address to the same engine, at one place. */
  readonly isSteered: boolean;
  /**
   * Whether a UDP listener on every address has a socket for each of them. Then a client may get to another
   * engine at another address: these sockets are opened as addresses appear, in no certain order.
   */
  readonly byAddress?: boolean;
}

type Served = Pick<ServicePortSpec, 'name' | 'protocol' | 'listen' | 'affinity'>;

/**
 * Which engines of several serve a service port.
 *
 * Its leader chooses ports where any will do, and the others listen on the same ones. With session affinity
 * the leader serves alone, unless the kernel leads all connections of a client to the same engine: each
 * engine remembers its own clients only.
 */
export class Homes {
  readonly #count: number;
  readonly #isSteered: boolean;
  readonly #byAddress: boolean;

  constructor(count: number, { isSteered, byAddress = false }: Steering) {
    this.#count = count;
    this.#isSteered = isSteered;
    this.#byAddress = byAddress;
  }

  /** The index of the leader: always the same for a name, and spread over the engines. */
  leaderOf(name: string): number {
    let hash = 0x811c9dc5;
    for (let index = 0; index < name.length; index += 1) {
      hash = Math.imul(hash ^ name.charCodeAt(index), 0x01000193);
    }
    return (hash >>> 0) % this.#count;
  }

  serves(index: number, spec: Served): boolean {
    return spec.affinity.kind === 'none' || this.#leads(spec) || index === this.leaderOf(spec.name);
  }

  /** Whether the kernel leads a client to the same engine wherever the service port listens. */
  #leads({ protocol, listen }: Served): boolean {
    if (!this.#isSteered) return false;
    return !(
      this.#byAddress &&
      protocol === 'UDP' &&
      listen.some(({ address }) => isWildcard(address))
    );
  }
}
