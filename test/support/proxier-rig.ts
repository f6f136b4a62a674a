import { AddressPortal } from '../../src/portal/address.ts';
import type { Exec } from '../../src/portal/exec.ts';
import { NftablesPortal } from '../../src/portal/nftables/portal.ts';
import type {
  Portal,
  PortalPlan,
  ServicePortPortals,
  PortalSpec,
} from '../../src/portal/portal.ts';
import { PortAllocator } from '../../src/portal/proxy-ports.ts';
import { problemChanged, type ProblemChanged } from '../../src/proxier/events.ts';
import { Proxier, type ProxierOptions } from '../../src/proxier/proxier.ts';
import type { ListenSpec, Protocol } from '../../src/proxysocket/spec.ts';
import type { Clock } from '../../src/util/clock.ts';
import { FakeClock } from './fake-clock.ts';
import { FakeEngine } from './fake-engine.ts';
import { FakeNft, landing, type Packet } from './fake-nft.ts';
import { NODE, packet } from './rule-rigs.ts';
import type { Teardown } from './sockets.ts';
import { TestView } from './messages.ts';

/** The address portal on a host without IPv6, counting how often it is asked. */
export class CountingPortal implements Portal {
  readonly kind = 'address';
  readonly #portal = new AddressPortal({ interfaces: () => [] });
  plans = 0;

  plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    this.plans += 1;
    return this.#portal.plan(set, remove);
  }

  commit(): Promise<void> {
    return this.#portal.commit();
  }

  close(): Promise<void> {
    return this.#portal.close();
  }
}

/** A proxier between a view that tests change and an engine without sockets. */
export class Rig<P extends Portal = CountingPortal> {
  readonly clock = new FakeClock();
  readonly engine = new FakeEngine();
  readonly view = new TestView();
  /** What was reported about problems: `kind code count`. */
  readonly told: string[] = [];
  readonly messages: string[] = [];
  readonly portal: P;
  readonly proxier: Proxier;
  readonly #onProblem = ({ kind, problem }: ProblemChanged): void => {
    this.told.push(`${kind} ${problem.code} ${problem.count}`);
    this.messages.push(problem.message);
  };

  constructor(portal: P, more: Pick<ProxierOptions, 'holderOf' | 'holds'> = {}) {
    this.portal = portal;
    const { engine, clock } = this;
    this.proxier = new Proxier({ engine, portal, clock, platform: 'linux', ...more });
    problemChanged.subscribe(this.#onProblem);
  }

  /** The kinds of changes of the last batch, with their service ports. */
  get lastBatch(): string[] {
    return (this.engine.batches.at(-1) ?? []).map((change) =>
      change.kind === 'set' ? `set ${change.spec.name}` : `${change.kind} ${change.name}`,
    );
  }

  async close(): Promise<void> {
    problemChanged.unsubscribe(this.#onProblem);
    await this.proxier.close();
  }
}

/** A rig with the address portal; the host has 10.0.0.1 to 10.0.0.9 and 192.0.2.1. */
export function addressRig(more: Pick<ProxierOptions, 'holderOf'> = {}): Rig {
  const rig = new Rig(new CountingPortal(), more);
  for (let last = 1; last < 10; last += 1) rig.engine.addresses.add(`10.0.0.${last}`);
  rig.engine.addresses.add('192.0.2.1');
  return rig;
}

/** A proxier with the nftables portal, on a kernel that evaluates. */
export function nftablesRig(
  t: Teardown,
  exec?: (exec: Exec) => Exec,
  clock?: Clock,
  holds = false,
) {
  const nft = new FakeNft();
  const portal = new NftablesPortal({
    allocator: new PortAllocator(undefined, Math.random),
    exec: exec === undefined ? nft.exec : exec(nft.exec),
    interfaces: () => NODE,
    ...(clock !== undefined && { clock }),
    canary: () => ({ open: async () => [], probe: async () => 'alive', close: () => undefined }),
  });
  const rig = new Rig(portal, { holds });
  t.teardown(async () => {
    await rig.close();
    await portal.close();
  });
  const local = new Set(NODE.map(({ address }) => address));
  /** Where a packet goes, and who listens there. */
  const lands = (to: string, more: Partial<Packet> = {}): string | undefined => {
    const end = landing(nft.table().sets, packet(to, more), local);
    const [, port] = /^proxy port (\d+)$/.exec(end) ?? [];
    const protocol = to.endsWith('/UDP') ? 'UDP' : 'TCP';
    return port === undefined
      ? end
      : rig.engine.lands('0.0.0.0', Number(port), protocol)?.servicePort;
  };
  rig.engine.addresses.add('0.0.0.0').add('::');
  return { rig, nft, lands };
}

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
