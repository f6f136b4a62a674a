import type { HealthCheck } from './check.ts';

/** A service whose port belongs to another one, and that one. */
export interface Waiting {
  readonly service: string;
  readonly port: number;
  readonly holder: string;
}

/** The owner of each port. The first service keeps it; the next one gets it as soon as it is released. */
export class CheckPorts {
  readonly #checks = new Map<string, HealthCheck>();
  /** Services by port, the holder first. */
  readonly #claims = new Map<number, string[]>();

  /** Every port that a service needs. */
  get ports(): ReadonlySet<number> {
    return new Set(this.#claims.keys());
  }

  /** Replaces the check of a service; undefined: it has none. */
  set(service: string, check: HealthCheck | undefined): void {
    const before = this.#checks.get(service);
    if (check === undefined) this.#checks.delete(service);
    else this.#checks.set(service, check);
    if (before?.port === check?.port) return;
    if (before !== undefined) this.#release(before.port, service);
    if (check === undefined) return;
    const claims = this.#claims.get(check.port);
    if (claims === undefined) this.#claims.set(check.port, [service]);
    else claims.push(service);
  }

  /** The health check on a port. */
  holder(port: number): HealthCheck | undefined {
    return this.#checks.get(this.#claims.get(port)?.[0] ?? '');
  }

  /** Services that wait for their port. */
  waiting(): Waiting[] {
    return [...this.#claims].flatMap(([port, [holder = '', ...others]]) =>
      others.map((service) => ({ service, port, holder })),
    );
  }

  #release(port: number, service: string): void {
    const left = (this.#claims.get(port) ?? []).filter((each) => each !== service);
    if (left.length === 0) this.#claims.delete(port);
    else this.#claims.set(port, left);
  }
}
