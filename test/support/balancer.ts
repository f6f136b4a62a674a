import { AffinityBudget } from '../../src/roundrobin/affinity.ts';
import { RoundRobinBalancer, type RoundRobinOptions } from '../../src/roundrobin/balancer.ts';
import type { BalancerEndpoint, PickRequest } from '../../src/roundrobin/endpoint.ts';
import type { Family } from '../../src/util/family.ts';
import type { AffinitySpec, EndpointSpec, Traffic } from '../../src/proxysocket/spec.ts';
import { FakeClock } from './fake-clock.ts';

/** Makes the shuffle leave everything where it is. */
const inOrder = (): number => 0.999_999;

/** A reproducible source of randomness. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

export const CLIENT_IP: AffinitySpec = { kind: 'clientIP', timeoutSeconds: 10_800 };
export const NONE: AffinitySpec = { kind: 'none' };

export function endpoint(
  text: string,
  allowed: 'both' | Traffic | 'neither' = 'both',
): EndpointSpec {
  const at = text.lastIndexOf(':');
  return {
    address: text.slice(0, at),
    port: Number(text.slice(at + 1)),
    internal: allowed === 'both' || allowed === 'internal',
    external: allowed === 'both' || allowed === 'external',
  };
}

/** A balancer with a clock and short ways to ask it. */
export class Subject {
  readonly clock = new FakeClock();
  readonly balancer: RoundRobinBalancer;
  readonly #budget: AffinityBudget;

  constructor(options: Partial<RoundRobinOptions> & { affinity?: AffinitySpec } = {}) {
    this.#budget = options.affinityBudget ?? new AffinityBudget({ maxClients: 1000 });
    this.balancer = new RoundRobinBalancer({
      clock: options.clock ?? this.clock,
      random: options.random ?? inOrder,
      affinityLimit: options.affinityLimit ?? { maxClients: 100 },
      affinityBudget: this.#budget,
    });
    this.balancer.setAffinity(options.affinity ?? NONE);
  }

  /** Number of clients that session affinity remembers. */
  get clients(): number {
    return this.#budget.size;
  }

  with(...endpoints: (string | EndpointSpec)[]): this {
    this.set(...endpoints);
    return this;
  }

  /** Replaces the endpoints; returns the texts of those that are gone. */
  set(...endpoints: (string | EndpointSpec)[]): string[] {
    const specs = endpoints.map((each) => (typeof each === 'string' ? endpoint(each) : each));
    return this.balancer.update(specs).map((gone) => gone.text);
  }

  pick(client = '127.0.0.1', rest: Partial<PickRequest> = {}): BalancerEndpoint | undefined {
    return this.balancer.pick({ client, traffic: 'internal', family: 4, tried: [], ...rest })
      ?.endpoint;
  }

  /** The text of the next endpoint, `none` when there is none. */
  next(client = '127.0.0.1', rest: Partial<PickRequest> = {}): string {
    return this.pick(client, rest)?.text ?? 'none';
  }

  /** The texts of the next endpoints, for clients with names of one letter, or so many times for the same one. */
  many(clients: number | string): string[] {
    const list = typeof clients === 'number' ? '1'.repeat(clients) : clients;
    return Array.from(list, (client) => this.next(client));
  }

  for(traffic: Traffic, family: Family = 4): string {
    return this.next('127.0.0.1', { traffic, family });
  }

  /** The object that stands for an endpoint. */
  member(text: string): BalancerEndpoint {
    const found = this.balancer.endpoints().find((each) => each.text === text);
    if (found === undefined) throw new Error(`${text} is not an endpoint now`);
    return found;
  }

  fail(...texts: string[]): void {
    for (const text of texts) this.balancer.connectFailed(this.member(text), 'refused');
  }
}

/** With session affinity for three hours. */
export function sticky(...endpoints: string[]): Subject {
  return new Subject({ affinity: CLIENT_IP }).with(...endpoints);
}
