import { LimitSignal } from '../core/limit-signal.ts';
import type { EngineLimits } from '../limits.ts';
import type { DescriptorBudget } from '../core/service-port.ts';

/** One for the client and one for the endpoint. */
const DESCRIPTORS_PER_CONNECTION = 2;

/**
 * Lets connections in up to a limit, and as far as there are descriptors.
 *
 * Node accepts by itself and cannot leave connections in the kernel's backlog, so what does not come
 * in here has been accepted and must be reset.
 */
export class ConnectionGate {
  readonly #limits: Pick<EngineLimits, 'maxConnections'>;
  readonly #descriptors: DescriptorBudget;
  readonly #signal: LimitSignal;
  #inside = 0;
  #waiting: (() => void)[] = [];

  /** The limit may change. */
  constructor(limits: Pick<EngineLimits, 'maxConnections'>, descriptors: DescriptorBudget) {
    this.#limits = limits;
    this.#descriptors = descriptors;
    this.#signal = new LimitSignal('max-connections', () => limits.maxConnections);
  }

  /** Connections that are inside: being connected to an endpoint, or relayed. */
  get inside(): number {
    return this.#inside;
  }

  enter(): boolean {
    if (this.#inside >= this.#limits.maxConnections) {
      this.#signal.refused();
      return false;
    }
    if (!this.#descriptors.take(DESCRIPTORS_PER_CONNECTION)) return false;
    this.#inside += 1;
    return true;
  }

  leave(): void {
    this.#inside -= 1;
    this.#descriptors.give(DESCRIPTORS_PER_CONNECTION);
    this.#signal.freed(this.#inside);
    if (this.#inside > 0) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  /** Resolves when nothing is inside. */
  async empty(): Promise<void> {
    if (this.#inside === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    await promise;
  }
}
