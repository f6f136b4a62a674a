import t, { type Test } from 'tap';
import { IptablesPortal, type IptablesPortalOptions } from '../../src/portal/iptables/portal.ts';
import type { Flavor } from '../../src/portal/iptables/tools.ts';
import { NftablesPortal, type NftablesPortalOptions } from '../../src/portal/nftables/portal.ts';
import { PortAllocator } from '../../src/portal/proxy-ports.ts';
import type { Portal, PortalPlan, ServicePortPortals } from '../../src/portal/portal.ts';
import type { Element, RuleConfig } from '../../src/portal/rules/backend.ts';
import type { RuleCanary, RulePortalOptions } from '../../src/portal/rules/rule-portal.ts';
import type { HostAddress } from '../../src/util/host-addresses.ts';
import { FakeClock } from './fake-clock.ts';
import { FakeIptables } from './fake-iptables.ts';
import { FakeNft, landing, type Landing, type Packet } from './fake-nft.ts';

export const NODE: readonly HostAddress[] = [
  { address: '127.0.0.1', loopback: true },
  { address: '::1', loopback: true },
  { address: '192.0.2.5', loopback: false },
  { address: '2001:db8::5', loopback: false },
];

export const CONFIG: RuleConfig = {
  owner: '0123456789ab',
  families: [4, 6],
  targets: { 4: '192.0.2.5', 6: '2001:db8::5' },
  nodePortNetworks: { 4: ['0.0.0.0/0'], 6: ['::/0'] },
};

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

/** A portal that writes rules, on a kernel that is made up. Listeners open at ports from 40001 on, in their order. */
abstract class RuleRig {
  readonly clock = new FakeClock();
  host: readonly HostAddress[] = NODE;
  /** Owners of rules whose process has ended. */
  readonly dead = new Set<string>();
  #owner = '';
  readonly #ports = new Map<string, number>();
  #nextPort = 40_001;

  abstract readonly portal: Portal;
  /** Another process on the same kernel. */
  protected abstract another(): RuleRig;
  /** Whether an owner's rules are there. */
  protected abstract hasRulesOf(owner: string): boolean;

  /** One sync: plan, listen, commit. */
  async sync(
    set: readonly ServicePortPortals[],
    remove: readonly string[] = [],
  ): Promise<PortalPlan> {
    const plan = this.portal.plan(set, remove);
    const bound = [...plan].map(([name, list]) => {
      const open = list.map((listen) => {
        const key = `${name} ${listen.address} ${listen.traffic}`;
        if (!this.#ports.has(key)) this.#ports.set(key, this.#nextPort++);
        return { listen, boundPort: listen.port || (this.#ports.get(key) ?? 0) };
      });
      return [name, open] as const;
    });
    await this.portal.commit(new Map(bound));
    return plan;
  }

  /** Lets time pass until the portal has looked at its rules once more, and has done what follows. */
  async look(ms = 500): Promise<void> {
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
      probe: async (asked) => (this.hasRulesOf(asked) && !this.dead.has(asked) ? 'alive' : 'gone'),
      close: (): void => undefined,
    };
  }
}

/** The portal on a nft that evaluates. */
export class NftablesRig extends RuleRig {
  readonly nft = new FakeNft();
  readonly exec = this.nft.exec;
  readonly portal: NftablesPortal;

  constructor(options: RigOptions = {}) {
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

  /** How many programs were run. */
  get runs(): number {
    return this.nft.commands.length;
  }

  lands(to: string, more: Partial<Packet> = {}): Landing {
    const local = new Set(this.host.map(({ address }) => address));
    return landing(this.nft.table().sets, packet(to, more), local);
  }

  /** Another program removes the rule for 10.0.0.1:80. */
  damage(): void {
    this.nft.table().sets.get('services4')?.delete('10.0.0.1 . tcp . 80');
  }

  protected another(): RuleRig {
    return new NftablesRig({ exec: this.exec });
  }

  protected hasRulesOf(owner: string): boolean {
    return this.nft.tables.get('kpng-userspace')?.chains.has(`owner-${owner}`) === true;
  }
}

/** The portal on made-up programs of iptables, of the flavour nft by default. */
export class IptablesRig extends RuleRig {
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

  /** Whether a rule redirects packets to an address. */
  redirects(address: string): boolean {
    const family = address.includes(':') ? 6 : 4;
    const rules = this.iptables.rules('KUBE-PORTALS-HOST', family, this.#flavor);
    return rules.some((rule) => rule.includes(`-d ${address}/`) && rule.includes('-j DNAT'));
  }

  protected another(): RuleRig {
    return new IptablesRig({ exec: this.exec }, this.#flavor);
  }

  protected hasRulesOf(owner: string): boolean {
    const tables = this.iptables.tables(4, this.#flavor);
    return tables.get('nat')?.has(`KPNG-KUBE-${owner}`) === true;
  }
}

export type RigOptions = Partial<NftablesPortalOptions>;

/** Defines a test with rigs whose portals close with the test. */
export function testRules(
  name: string,
  action: (t: Test, make: (options?: RigOptions) => NftablesRig) => Promise<void>,
): void {
  t.test(name, async (t) => {
    await action(t, (options) => {
      const rig = new NftablesRig(options);
      t.teardown(() => rig.portal.close());
      return rig;
    });
  });
}
