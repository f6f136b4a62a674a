import type {
  Portal,
  PortalPlan,
  PortalSpec,
  ServicePortPortals,
} from '../../src/portal/portal.ts';
import type { ListenSpec, Protocol } from '../../src/proxysocket/spec.ts';

type Bound = Parameters<Portal['commit']>[0];

/**
 * A redirecting portal without a kernel: each service port gets a proxy port on 127.0.0.1, and the
 * rules that `commit` writes report where a packet goes.
 */
export class FakePortal implements Portal {
  readonly kind = 'nftables';
  readonly redirects = true;
  /** What was asked: names that were set, and those that were removed. */
  readonly plans: { readonly set: readonly string[]; readonly remove: readonly string[] }[] = [];
  commits = 0;
  /** Makes the next plan throw. */
  failPlan: Error | undefined;
  /** Makes the next commit reject. */
  failCommit: Error | undefined;

  readonly #portals = new Map<string, readonly PortalSpec[]>();
  readonly #proxyPorts = new Map<string, number>();
  #rules = new Map<string, number>();

  plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    const error = this.failPlan;
    this.failPlan = undefined;
    if (error !== undefined) throw error;
    this.plans.push({ set: set.map(({ servicePort }) => servicePort), remove });
    const listen = new Map<string, readonly ListenSpec[]>();
    for (const name of remove) this.#portals.delete(name);
    for (const { servicePort, portals } of set) {
      if (!this.#portals.has(servicePort)) {
        listen.set(servicePort, [{ address: '127.0.0.1', port: 0, traffic: 'internal' }]);
      }
      this.#portals.set(servicePort, portals);
    }
    return { listen, problems: [] };
  }

  async commit(bound: Bound): Promise<void> {
    this.commits += 1;
    const error = this.failCommit;
    this.failCommit = undefined;
    if (error !== undefined) throw error;
    for (const [name, [first]] of bound) {
      if (first !== undefined) this.#proxyPorts.set(name, first.boundPort);
    }
    this.#rules = new Map();
    for (const [name, portals] of this.#portals) {
      const proxyPort = this.#proxyPorts.get(name);
      if (proxyPort === undefined) continue;
      for (const { address, port, protocol } of portals) {
        this.#rules.set(`${address ?? 'node'} ${port} ${protocol}`, proxyPort);
      }
    }
  }

  async close(): Promise<void> {
    this.#rules.clear();
  }

  /** The port of 127.0.0.1 that a packet is sent to; undefined when no rule is for it. */
  lands(address: string, port: number, protocol: Protocol = 'TCP'): number | undefined {
    return this.#rules.get(`${address} ${port} ${protocol}`);
  }
}
