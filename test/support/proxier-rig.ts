import type { Exec } from '../../src/portal/exec.ts';
import { NftablesPortal } from '../../src/portal/nftables/portal.ts';
import { PortAllocator } from '../../src/portal/proxy-ports.ts';
import type { Portal, PortalPlan, ServicePortPortals } from '../../src/portal/portal.ts';
import { AddressPortal } from '../../src/portal/address.ts';
import { problemChanged, type ProblemChanged } from '../../src/proxier/events.ts';
import { Proxier, type ProxierOptions } from '../../src/proxier/proxier.ts';
import type { Clock } from '../../src/util/clock.ts';
import { FakeClock } from './fake-clock.ts';
import { FakeEngine } from './fake-engine.ts';
import { FakeNft } from './fake-nft.ts';
import { landing, type Packet } from './landing.ts';
import { NODE, packet } from './rule-rig.ts';
import type { Teardown } from './sockets.ts';
import { TestView } from './views.ts';

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
