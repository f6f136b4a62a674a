import t, { type Test } from 'tap';
import { CHAINS_INTERVAL_MS } from '../../src/portal/bounds.ts';
import type { Exec } from '../../src/portal/exec.ts';
import { IptablesPortal, type IptablesPortalOptions } from '../../src/portal/iptables/portal.ts';
import type { Flavor } from '../../src/portal/iptables/tools.ts';
import { NftablesPortal, type NftablesPortalOptions } from '../../src/portal/nftables/portal.ts';
import { PortAllocator } from '../../src/portal/proxy-ports.ts';
import type { Portal, PortalPlan, ServicePortPortals } from '../../src/portal/portal.ts';
import type { ProbeResult } from '../../src/portal/rules/canary.ts';
import type { Element } from '../../src/portal/rules/elements.ts';
import type { RuleCanary, RulePortalOptions } from '../../src/portal/rules/rule-portal.ts';
import type { HostAddress } from '../../src/util/host-addresses.ts';
import { FakeClock } from './fake-clock.ts';
import type { Reaction } from './fake-exec.ts';
import { FakeIptables } from './fake-iptables.ts';
import { FakeNft } from './fake-nft.ts';
import { iptablesLanding, landing, type Landing, type Packet } from './landing.ts';

export const NODE: readonly HostAddress[] = [
  { address: '127.0.0.1', loopback: true },
  { address: '::1', loopback: true },
  { address: '192.0.2.5', loopback: false },
  { address: '2001:db8::5', loopback: false },
];

/** A packet from another machine, unless said otherwise: `10.0.0.1:80`, `[fd00::1]:53/UDP`. */
export function packet(to: string, more: Partial<Packet> = {}): Packet {
  const [place = '', protocol] = to.split('/');
  const at = place.lastIndexOf(':');
  const destination = place.slice(0, at).replace(/^\[|\]$/g, '');
  return {
    from: 'outside',
    source: destination.includes(':') ? '2001:db8::9' : '192.0.2.9',
    protocol: protocol === 'UDP' ? 'UDP' : 'TCP',
    destination,
    port: Number(place.slice(at + 1)),
    ...more,
  };
}

/** Options that every portal has which writes rules. */
export type RigOptions = Partial<RulePortalOptions>;

/**
 * A portal on a kernel that is made up and evaluates. Listeners open at ports from 40001 on, in the
 * order in which they are first asked for.
 */
export abstract class RuleRig {
  readonly clock = new FakeClock();
  host: readonly HostAddress[] = NODE;
  /** Listeners that fail to open: `servicePort address traffic`. */
  readonly closed = new Set<string>();
  /** Owners of rules whose process has ended. */
  readonly dead = new Set<string>();
  /** Whether the canary gets no answer. */
  silent = false;
  #owner = '';
  readonly #ports = new Map<string, number>();
  #nextPort = 40_001;

  abstract readonly kind: Portal['kind'];
  abstract readonly portal: Portal;
  abstract readonly exec: Exec;
  /** How many programs were run. */
  abstract readonly runs: number;
  /** What the rules were written with. */
  abstract readonly scripts: readonly string[];
  /** Lets every program of the rules react so; undefined: as it should. */
  abstract breakTools(reaction: Reaction | undefined): void;
  /** Another program removes all rules. */
  abstract flush(): void;
  /** Another program removes the rule for 10.0.0.1:80. */
  abstract damage(): void;
  /** Rules with this text in them are not taken; undefined: all are. */
  abstract refuse(text: string | undefined): void;
  /** Another process on the same kernel. */
  protected abstract another(): RuleRig;
  protected abstract landing(packet: Packet, local: ReadonlySet<string>): Landing;
  /** Whether an owner's rules are there. */
  protected abstract hasRulesOf(owner: string): boolean;

  /** One sync: plan, listen, commit. */
  async sync(
    set: readonly ServicePortPortals[],
    remove: readonly string[] = [],
  ): Promise<PortalPlan> {
    const plan = this.portal.plan(set, remove);
    await this.commit(plan);
    return plan;
  }

  async commit(plan: PortalPlan): Promise<void> {
    const bound = new Map(
      [...plan.listen].map(([name, list]) => [
        name,
        list.flatMap((listen) => {
          const key = `${name} ${listen.address} ${listen.traffic}`;
          if (this.closed.has(key)) return [];
          if (!this.#ports.has(key)) this.#ports.set(key, this.#nextPort++);
          return [{ listen, boundPort: listen.port || (this.#ports.get(key) ?? 0) }];
        }),
      ]),
    );
    await this.portal.commit(bound);
  }

  lands(to: string, more: Partial<Packet> = {}): Landing {
    return this.landing(packet(to, more), new Set(this.host.map(({ address }) => address)));
  }

  /** Lets time pass until the portal has looked at its rules once more, whatever they are, and has done what follows. */
  async look(ms = CHAINS_INTERVAL_MS): Promise<void> {
    this.clock.advance(ms);
    for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
  }

  /** What the portal needs besides the programs. */
  protected options(): RulePortalOptions {
    return {
      allocator: new PortAllocator(undefined, Math.random),
      clock: this.clock,
      random: () => 0.5,
      interfaces: () => this.host,
    };
  }

  /** Another process of ours takes the rules over; its name. */
  async takeOver(services: readonly ServicePortPortals[]): Promise<string> {
    const other = this.another();
    await other.sync(services);
    await other.portal.close();
    return other.#owner;
  }

  /** Finds out from the made-up kernel what the real canary finds out with a connection. */
  protected canary(owner: string, elements: Element[] = []): RuleCanary {
    this.#owner = owner;
    return {
      open: async () => elements,
      probe: async (asked = owner) => this.#probe(asked),
      pidOf: async () => 4711,
      close: (): void => undefined,
    };
  }

  #probe(owner: string): ProbeResult {
    if (this.silent) return 'silent';
    return this.hasRulesOf(owner) && !this.dead.has(owner) ? 'alive' : 'gone';
  }
}

/** The portal on a nft that evaluates. */
export class NftablesRig extends RuleRig {
  readonly kind = 'nftables';
  readonly nft = new FakeNft();
  readonly exec = this.nft.exec;
  readonly portal: NftablesPortal;

  constructor(options: Partial<NftablesPortalOptions> = {}) {
    super();
    this.portal = new NftablesPortal({
      ...this.options(),
      exec: this.exec,
      canary: ({ owner }) => {
        const port = 20_000 + (Number.parseInt(owner.slice(0, 4), 16) % 9000);
        const key = `127.200.0.1 . tcp . ${port}`;
        return this.canary(owner, [{ set: 'services4', key, value: '39999' }]);
      },
      ...options,
    });
  }

  get runs(): number {
    return this.nft.commands.length;
  }

  get scripts(): readonly string[] {
    return this.nft.scripts;
  }

  breakTools(reaction: Reaction | undefined): void {
    this.nft.broken = reaction;
  }

  flush(): void {
    this.nft.flush();
  }

  damage(): void {
    this.nft.table().sets.get('services4')?.delete('10.0.0.1 . tcp . 80');
  }

  refuse(text: string | undefined): void {
    this.nft.refuses = (element) => text !== undefined && element.startsWith(text);
  }

  protected another(): RuleRig {
    return new NftablesRig({ exec: this.exec });
  }

  protected landing(packet: Packet, local: ReadonlySet<string>): Landing {
    return landing(this.nft.table().sets, packet, local);
  }

  protected hasRulesOf(owner: string): boolean {
    return this.nft.tables.get('kpng-userspace')?.chains.has(`owner-${owner}`) === true;
  }
}

/** The portal on programs of iptables that evaluate, of the flavour nft by default. */
export class IptablesRig extends RuleRig {
  readonly kind = 'iptables';
  readonly iptables = new FakeIptables();
  readonly exec = this.iptables.exec;
  readonly portal: IptablesPortal;
  readonly #flavor: Flavor;

  constructor(options: Partial<IptablesPortalOptions> = {}, flavor: Flavor = 'nft') {
    super();
    this.#flavor = flavor;
    this.portal = new IptablesPortal({
      ...this.options(),
      exec: this.exec,
      tools: async () => ({ flavor, name: `iptables-${flavor}`, version: '1.8.9' }),
      canary: ({ owner }) => this.canary(owner),
      ...options,
    });
  }

  get runs(): number {
    return this.iptables.commands.length;
  }

  get scripts(): readonly string[] {
    return this.iptables.scripts;
  }

  breakTools(reaction: Reaction | undefined): void {
    this.iptables.broken = reaction;
  }

  flush(): void {
    this.iptables.flush();
  }

  damage(): void {
    const chains = this.iptables.tables(4, this.#flavor).get('nat');
    for (const chain of ['KUBE-PORTALS-CONTAINER', 'KUBE-PORTALS-HOST']) {
      const rules = chains?.get(chain) ?? [];
      chains?.set(
        chain,
        rules.filter((rule) => !rule.includes('-d 10.0.0.1/32')),
      );
    }
  }

  refuse(text: string | undefined): void {
    this.iptables.refuses = (line) => text !== undefined && line.includes(`-d ${text}`);
  }

  protected another(): RuleRig {
    return new IptablesRig({ exec: this.exec }, this.#flavor);
  }

  protected landing(packet: Packet, local: ReadonlySet<string>): Landing {
    const family = packet.destination.includes(':') ? 6 : 4;
    return iptablesLanding(this.iptables.tables(family, this.#flavor), packet, local);
  }

  protected hasRulesOf(owner: string): boolean {
    const tables = this.iptables.tables(4, this.#flavor);
    return tables.get('nat')?.has(`KPNG-KUBE-${owner}`) === true;
  }
}

/** Both flavours of iptables get the same scripts; what differs has tests of its own. */
const MAKERS: Readonly<Record<string, (options?: RigOptions) => RuleRig>> = {
  nftables: (options) => new NftablesRig(options),
  iptables: (options) => new IptablesRig(options, 'nft'),
};

/** Defines a test for each portal that writes rules. `make` makes a rig whose portal closes with the test. */
export function testEachRig(
  name: string,
  action: (t: Test, make: (options?: RigOptions) => RuleRig) => Promise<void>,
): void {
  for (const [kind, maker] of Object.entries(MAKERS)) {
    t.test(`${kind}: ${name}`, async (t) => {
      await action(t, (options) => {
        const rig = maker(options);
        t.teardown(() => rig.portal.close());
        return rig;
      });
    });
  }
}
