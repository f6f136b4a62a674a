import { CHAINS_INTERVAL_MS } from '../../src/portal/bounds.ts';
import type { Exec } from '../../src/portal/exec.ts';
import { PortAllocator } from '../../src/portal/proxy-ports.ts';
import type { Portal, PortalPlan, ServicePortPortals } from '../../src/portal/portal.ts';
import type { ProbeResult } from '../../src/portal/rules/canary.ts';
import type { RulePortalOptions } from '../../src/portal/rules/rule-portal.ts';
import type { HostAddress } from '../../src/util/host-addresses.ts';
import { FakeClock } from './fake-clock.ts';
import type { Reaction } from './fake-exec.ts';
import type { Landing, Packet } from './landing.ts';

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
  /** Another process of ours takes the rules over; its name. */
  abstract takeOver(services: readonly ServicePortPortals[]): Promise<string>;
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

  /** Finds out from the made-up kernel what the real canary finds out with a connection. */
  protected probe(owner: string): ProbeResult {
    if (this.silent) return 'silent';
    return this.hasRulesOf(owner) && !this.dead.has(owner) ? 'alive' : 'gone';
  }
}
