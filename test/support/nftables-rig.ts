import { NftablesPortal, type NftablesPortalOptions } from '../../src/portal/nftables/portal.ts';
import type { HostAddress } from '../../src/util/host-addresses.ts';
import { PortAllocator } from '../../src/portal/port-allocator.ts';
import type { PortalPlan, ServicePortPortals } from '../../src/portal/portal.ts';
import type { ProbeResult } from '../../src/portal/guard.ts';
import type { Element } from '../../src/portal/nftables/elements.ts';
import { FakeClock } from './fake-clock.ts';
import { FakeNft } from './fake-nft.ts';
import { landing, type Landing, type Packet } from './landing.ts';

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

/**
 * A portal on a nft that evaluates. Listeners open at ports from 40001 on, in the order in which they are
 * first asked for.
 */
export class NftablesRig {
  readonly nft = new FakeNft();
  readonly clock = new FakeClock();
  readonly canary = new FakeCanary(this.nft);
  host: readonly HostAddress[] = NODE;
  readonly portal: NftablesPortal;
  /** Listeners that fail to open: `servicePort address traffic`. */
  readonly closed = new Set<string>();
  readonly #ports = new Map<string, number>();
  #nextPort = 40_001;

  constructor(options: Partial<NftablesPortalOptions> = {}) {
    this.portal = new NftablesPortal({
      allocator: new PortAllocator(undefined, Math.random),
      exec: this.nft.exec,
      clock: this.clock,
      random: () => 0.5,
      interfaces: () => this.host,
      canary: ({ owner }) => this.canary.of(owner),
      ...options,
    });
  }

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
    const local = new Set(this.host.map(({ address }) => address));
    return landing(this.nft.table().sets, packet(to, more), local);
  }

  /** Lets time pass until the portal has looked at its rules once more, and has done what follows. */
  async look(ms = 400): Promise<void> {
    this.clock.advance(ms);
    for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
  }
}

/** Finds out from the fake kernel what the real canary finds out with a connection. */
class FakeCanary {
  readonly #nft: FakeNft;
  /** Owners whose process has ended. */
  readonly dead = new Set<string>();
  silent = false;

  constructor(nft: FakeNft) {
    this.#nft = nft;
  }

  of(owner: string) {
    const key = `127.200.0.1 . tcp . ${20_000 + (Number.parseInt(owner.slice(0, 4), 16) % 9000)}`;
    return {
      open: async (): Promise<Element[]> => [{ set: 'services4', key, value: '39999' }],
      probe: async (asked = owner): Promise<ProbeResult> => {
        if (this.silent) return 'silent';
        const table = this.#nft.tables.get('kpng-userspace');
        const there = table?.chains.has(`owner-${asked}`) === true && !this.dead.has(asked);
        return there ? 'alive' : 'gone';
      },
      close: (): void => undefined,
    };
  }
}
