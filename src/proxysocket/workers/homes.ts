import type { ServicePortSpec } from '../spec.ts';

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

  constructor(count: number, isSteered: boolean) {
    this.#count = count;
    this.#isSteered = isSteered;
  }

  /** The index of the leader: always the same for a name, and spread over the engines. */
  leaderOf(name: string): number {
    let hash = 0x811c9dc5;
    for (let index = 0; index < name.length; index += 1) {
      hash = Math.imul(hash ^ name.charCodeAt(index), 0x01000193);
    }
    return (hash >>> 0) % this.#count;
  }

  serves(index: number, spec: Pick<ServicePortSpec, 'name' | 'affinity'>): boolean {
    return this.#isSteered || spec.affinity.kind === 'none' || index === this.leaderOf(spec.name);
  }
}
