import { AddressPortal } from '../../src/portal/address.ts';
import type { Portal } from '../../src/portal/portal.ts';
import { PortAllocator } from '../../src/portal/proxy-ports.ts';
import { problemChanged, type ProblemChanged } from '../../src/proxier/events.ts';
import { Proxier, type ProxierOptions } from '../../src/proxier/proxier.ts';
import type { ServiceEntry } from '../../src/store/local-view.ts';
import type { PortRange } from '../../src/util/port-range.ts';
import { FakeClock } from './fake-clock.ts';
import { FakeHost } from './fake-host.ts';
import { NftablesRig } from './rule-rigs.ts';
import type { Teardown } from './sockets.ts';
import { TestView } from './messages.ts';

/** A proxier between a view that tests change and an engine without sockets. */
export class Rig {
  readonly clock = new FakeClock();
  readonly engine = new FakeHost({ addresses: new Set() });
  readonly view = new TestView();
  /** What was reported about problems: `kind code count`. */
  readonly told: string[] = [];
  readonly messages: string[] = [];
  readonly portal: Portal;
  /** How often the portal was asked to plan. */
  plans = 0;
  readonly proxier: Proxier;
  readonly #onProblem = ({ kind, problem }: ProblemChanged): void => {
    this.told.push(`${kind} ${problem.code} ${problem.count}`);
    this.messages.push(problem.message);
  };

  constructor(portal: Portal, more: Pick<ProxierOptions, 'holderOf' | 'holds'> = {}) {
    this.portal = portal;
    const { engine, clock } = this;
    const plan = portal.plan.bind(portal);
    portal.plan = (set, remove) => {
      this.plans += 1;
      return plan(set, remove);
    };
    this.proxier = new Proxier({ engine, portal, clock, platform: 'linux', ...more });
    problemChanged.subscribe(this.#onProblem);
  }

  /** Applies a change set: services that are new or changed, gone, or only named. */
  readonly set = (...entries: readonly ServiceEntry[]) =>
    this.proxier.sync(this.view.set(...entries));
  readonly remove = (...keys: readonly string[]) => this.proxier.sync(this.view.remove(...keys));
  readonly again = (...keys: readonly string[]) => this.proxier.sync(this.view.again(...keys));

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

/** A rig with the address portal; the host has 10.0.0.1 to 10.0.0.9 and 192.0.2.1, and no IPv6. */
export function addressRig(t: Teardown, more: Pick<ProxierOptions, 'holderOf'> = {}): Rig {
  const rig = new Rig(new AddressPortal({ interfaces: () => [] }), more);
  t.teardown(() => rig.close());
  for (let last = 1; last < 10; last += 1) rig.engine.addresses.add(`10.0.0.${last}`);
  rig.engine.addresses.add('192.0.2.1');
  return rig;
}

/** A proxier with the nftables portal, on a kernel that evaluates. */
export function nftablesRig(
  t: Teardown,
  {
    holds = false,
    range,
  }: {
    readonly holds?: boolean;
    /** Proxy ports: the first one, then from the last one down; only IPv4. Default: the kernel chooses. */
    readonly range?: PortRange;
  } = {},
) {
  const rules = new NftablesRig({
    allocator: new PortAllocator(range, () => 0),
    ...(range && { families: [4] }),
    canary: () => ({ open: async () => [], probe: async () => 'alive', close: () => undefined }),
  });
  const { portal, nft, clock } = rules;
  const rig = new Rig(portal, { holds });
  t.teardown(async () => {
    await rig.close();
    await portal.close();
  });
  /** Where a packet goes, and who listens there. */
  const lands = (...packet: Parameters<NftablesRig['lands']>): string | undefined => {
    const end = rules.lands(...packet);
    const [, port] = /^proxy port (\d+)$/.exec(end) ?? [];
    const protocol = packet[0].endsWith('/UDP') ? 'UDP' : 'TCP';
    return port === undefined
      ? end
      : rig.engine.lands('0.0.0.0', Number(port), protocol)?.servicePort;
  };
  rig.engine.addresses.add('0.0.0.0').add('::');
  /** `clock`: that of the portal. */
  return { rig, nft, clock, lands };
}
