import t, { type Test } from 'tap';
import { iptablesBackend } from '../../src/portal/iptables/backend.ts';
import type { Flavor } from '../../src/portal/iptables/tools.ts';
import { nftablesBackend } from '../../src/portal/nftables/backend.ts';
import { PortAllocator } from '../../src/portal/proxy-ports.ts';
import type { PortalPlan, ServicePortPortals } from '../../src/portal/portal.ts';
import type { RuleCanary, RuleConfig } from '../../src/portal/rules/backend.ts';
import { RulePortal, type RulePortalOptions } from '../../src/portal/rules/rule-portal.ts';
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

/** A canary that finds nothing wrong. */
export const CONTENT: RuleCanary = {
  open: async () => [],
  probe: async () => 'alive',
  close: () => undefined,
};

/** A portal that writes rules, on a kernel that is made up. Listeners open at ports from 40001 on, in their order. */
abstract class RuleRig {
  readonly clock = new FakeClock();
  host: readonly HostAddress[] = NODE;
  abstract readonly portal: RulePortal;
  readonly #ports = new Map<string, number>();

  /** One sync: plan, listen, commit. */
  async sync(
    set: readonly ServicePortPortals[],
    remove: readonly string[] = [],
  ): Promise<PortalPlan> {
    const plan = this.portal.plan(set, remove);
    const portOf = (key: string): number => {
      const port = this.#ports.get(key) ?? 40_001 + this.#ports.size;
      this.#ports.set(key, port);
      return port;
    };
    const bound = [...plan].map(([name, list]) => {
      const open = list.map((listen) => {
        const { address, traffic, port } = listen;
        return { listen, boundPort: port || portOf(`${name} ${address} ${traffic}`) };
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
      canary: () => CONTENT,
    };
  }
}

/** The portal on a nft that evaluates. */
export class NftablesRig extends RuleRig {
  readonly nft = new FakeNft();
  readonly exec = this.nft.exec;
  readonly portal: RulePortal;
  /** Owners of rules whose process has ended. */
  readonly dead = new Set<string>();
  #owner = '';

  constructor({ table, ...options }: RigOptions = {}) {
    super();
    const all: RulePortalOptions = {
      ...this.options(),
      exec: this.exec,
      // Finds out from the made-up kernel what the real canary finds out with a connection.
      canary: ({ owner }) => {
        this.#owner = owner;
        const element = { set: 'services4', key: '127.200.0.1 . tcp . 9', value: '39999' };
        const hasRules = (asked: string): boolean =>
          this.nft.tables.get('kpng-userspace')?.chains.has(`owner-${asked}`) === true;
        return {
          ...CONTENT,
          open: async () => [element],
          probe: async (asked) => (hasRules(asked) && !this.dead.has(asked) ? 'alive' : 'gone'),
        };
      },
      ...options,
    };
    this.portal = new RulePortal(all, nftablesBackend(all.exec ?? this.exec, table));
  }

  /** How many programs were run. */
  get runs(): number {
    return this.nft.commands.length;
  }

  lands(to: string, more: Partial<Packet> = {}): Landing {
    const local = new Set(this.host.map(({ address }) => address));
    return landing(this.nft.table().sets, packet(to, more), local);
  }

  /** Another process of ours takes the rules over; its name. */
  async takeOver(services: readonly ServicePortPortals[]): Promise<string> {
    const other = new NftablesRig({ exec: this.exec });
    await other.sync(services);
    await other.portal.close();
    return other.#owner;
  }
}

/** The portal on made-up programs of iptables, of the flavour nft by default. */
export class IptablesRig extends RuleRig {
  readonly iptables = new FakeIptables();
  readonly exec = this.iptables.exec;
  readonly portal: RulePortal;

  constructor({ prefix, ...options }: IptablesOptions = {}, flavor: Flavor = 'nft') {
    super();
    const exec = options.exec ?? this.exec;
    const tools = async () => ({ flavor, name: `iptables-${flavor}`, version: '1.8.9' });
    const backend = iptablesBackend(exec, tools, prefix);
    this.portal = new RulePortal({ ...this.options(), exec, ...options }, backend);
  }

  /** Whether a rule redirects packets to an address. */
  redirects(address: string): boolean {
    const rules = this.iptables.rules('KUBE-PORTALS-HOST', address.includes(':') ? 6 : 4);
    return rules.some((rule) => rule.includes(`-d ${address}/`) && rule.includes('-j DNAT'));
  }
}

export type RigOptions = Partial<RulePortalOptions> & { readonly table?: string };
type IptablesOptions = Partial<RulePortalOptions> & { readonly prefix?: string };

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
