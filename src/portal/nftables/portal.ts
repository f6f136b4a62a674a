import { randomBytes } from 'node:crypto';
import { KpngError } from '../../errors.ts';
import type { ListenSpec } from '../../proxysocket/spec.ts';
import { Backoff, type BackoffPolicy } from '../../util/backoff.ts';
import { systemClock, type Clock } from '../../util/clock.ts';
import { hostAddresses, type HostAddress } from '../../util/host-addresses.ts';
import { SerialQueue } from '../../util/serial-queue.ts';
import { ADDRESS_INTERVAL_MS } from '../bounds.ts';
import {
  flowsCleared,
  flowsNotCleared,
  portalFailed,
  portalLost,
  portalWritten,
} from '../events.ts';
import { systemExec, type Exec } from '../exec.ts';
import { FlowCleaner } from '../flows.ts';
import { Guard, type ProbeResult } from '../guard.ts';
import type { PortAllocator } from '../port-allocator.ts';
import type { Portal, PortalPlan, ServicePortPortals } from '../portal.ts';
import { RedirectPlan } from '../redirect-plan.ts';
import { Canary } from './canary.ts';
import { flowPlaces } from './flow-places.ts';
import { bindAddresses, hostFamilies, nodePortNetworks, targetsOf } from './host.ts';
import type { RuleConfig } from './rules.ts';
import { checkTableName, DEFAULT_TABLE } from './table-name.ts';
import { Table } from './table.ts';
import { elementsOf } from './translate.ts';
import type { Written } from './writer.ts';

export interface NftablesPortalOptions {
  readonly allocator: PortAllocator;
  /** Default `kpng-userspace`. Several proxiers on one host need a table each. */
  readonly table?: string;
  /**
   * Where proxy ports listen. Default `0.0.0.0`, which stands for all addresses of both families. A
   * single address is for its family only.
   */
  readonly bindAddress?: string;
  /**
   * Which addresses of the node have node ports: networks, addresses, or `primary`, `localhost`,
   * `all`. Empty (default): all.
   */
  readonly nodePortAddresses?: readonly string[];
  /** Whether `close` removes the table, unless another process has taken it. Default: the rules stay. */
  readonly removeOnClose?: boolean;
  /** The host's addresses now; by default as Node tells them. */
  readonly interfaces?: () => readonly HostAddress[];
  readonly exec?: Exec;
  readonly clock?: Clock;
  /** As `Math.random`, which is the default. */
  readonly random?: () => number;
  /** Makes the canary; tests have one without sockets. */
  readonly canary?: (config: RuleConfig) => CanaryLike;
}

/** What the portal needs of its canary. */
export type CanaryLike = Pick<Canary, 'open' | 'probe' | 'close'>;

/** Waits before service ports that the kernel did not take are tried again. */
const READMIT_BACKOFF: BackoffPolicy = {
  initialMs: 30_000,
  maxMs: 600_000,
  factor: 2,
  jitter: 0.2,
};

/**
 * Leads traffic to the proxy ports with one table of nftables.
 *
 * The number of rules is constant; everything about services is in maps and sets, so that a change of
 * a service is a few elements. What differs since the last commit goes out as one transaction; the
 * first one replaces whatever table of that name there was, so that after a restart there is no
 * moment without rules. The rules stay when the process ends.
 *
 * The table is watched with a canary, and replaced as a whole when somebody else has removed it.
 * When another process of ours takes the table over, this one leaves it alone until that one ends.
 */
export class NftablesPortal implements Portal {
  readonly kind = 'nftables';
  readonly redirects = true;
  readonly #clock: Clock;
  readonly #interfaces: () => readonly HostAddress[];
  readonly #nodePortAddresses: readonly string[];
  readonly #removeOnClose: boolean;
  readonly #bound: Readonly<Partial<Record<4 | 6, string>>>;
  readonly #plan: RedirectPlan;
  readonly #table: Table;
  readonly #flows: FlowCleaner;
  readonly #canary: CanaryLike;
  readonly #guard: Guard;
  readonly #readmitBackoff: Backoff;
  /** Writes must not overlap. */
  readonly #queue = new SerialQueue();
  #config: RuleConfig;
  #addressesReadAt: number;
  #readmitAt: number | undefined;
  #canaryOpen = false;

  /** Throws KPNG_USAGE for a bind address or table name that cannot be, RangeError for node port addresses. */
  constructor(options: NftablesPortalOptions) {
    const { table = DEFAULT_TABLE, nodePortAddresses = [], random = Math.random } = options;
    const { exec = systemExec, clock = systemClock, interfaces = hostAddresses } = options;
    checkTableName(table);
    this.#clock = clock;
    this.#interfaces = interfaces;
    this.#nodePortAddresses = nodePortAddresses;
    this.#removeOnClose = options.removeOnClose ?? false;
    const host = interfaces();
    const families = hostFamilies(host);
    this.#bound = bindAddresses(options.bindAddress ?? '0.0.0.0', families);
    this.#config = {
      table,
      owner: randomBytes(6).toString('hex'),
      families,
      targets: targetsOf(this.#bound, host, undefined),
      nodePortNetworks: nodePortNetworks(nodePortAddresses, host),
    };
    this.#addressesReadAt = clock.now();
    this.#plan = new RedirectPlan({ allocator: options.allocator, bindAddresses: this.#bound });
    this.#table = new Table(exec);
    this.#flows = new FlowCleaner(exec);
    this.#canary = (options.canary ?? realCanary)(this.#config);
    this.#readmitBackoff = new Backoff(READMIT_BACKOFF, random);
    this.#guard = new Guard({
      clock,
      random,
      look: () => this.#canary.probe(this.#table.takenBy ?? this.#config.owner),
      housekeeping: () => this.#housekeeping(),
      repair: (found, first) => this.#repair(found, first),
    });
  }

  plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    const { listen, problems } = this.#plan.plan(set, remove);
    return { listen, problems: [...problems, ...this.#table.refused] };
  }

  /**
   * Writes what differs, in one transaction. Rejects with KPNG_PORTAL_* when that fails; then the old
   * rules stay, and everything is due again at the next commit.
   */
  commit(
    bound: ReadonlyMap<string, readonly { listen: ListenSpec; boundPort: number }[]>,
  ): Promise<void> {
    return this.#queue.run(async () => {
      const names = [...this.#plan.settle(bound)];
      this.#table.replace(
        new Map(
          names.map((name) => [
            name,
            elementsOf(this.#plan.leads(name), this.#plan.proxyPorts(name)),
          ]),
        ),
      );
      await this.#openCanary();
      await this.#write();
      this.#guard.start();
    });
  }

  /**
   * Ends the watch. The rules stay, as they should over a restart, unless `removeOnClose` says
   * otherwise; then it rejects with KPNG_PORTAL_* when they cannot be removed. Idempotent.
   */
  async close(): Promise<void> {
    await this.#guard.close();
    await this.#queue.run(async () => {
      if (this.#removeOnClose) await this.#table.remove(this.#config);
    });
    this.#canary.close();
  }

  async #openCanary(): Promise<void> {
    if (this.#canaryOpen) return;
    try {
      this.#table.add(await this.#canary.open());
    } catch (cause) {
      const reason = cause instanceof Error ? cause.message : String(cause);
      throw new KpngError('KPNG_PORTAL_FAILED', `opening the canary's port: ${reason}`, { cause });
    }
    this.#canaryOpen = true;
  }

  async #write(): Promise<void> {
    const begin = this.#clock.now();
    let written: Written | undefined;
    try {
      written = await this.#table.write(this.#config);
    } catch (error) {
      if (error instanceof KpngError && portalFailed.hasSubscribers) {
        portalFailed.publish({ portal: 'nftables', error });
      }
      throw error;
    }
    if (this.#table.refused.length === 0) {
      this.#readmitAt = undefined;
      this.#readmitBackoff.reset();
    } else {
      this.#readmitAt ??= this.#clock.now() + this.#readmitBackoff.next();
    }
    if (written === undefined) return;
    publishWritten(written, this.#clock.now() - begin);
    await this.#clearFlows(written);
  }

  async #clearFlows({ reason, changes }: Written): Promise<void> {
    const places = flowPlaces(this.#table.ledger, reason === 'change' ? changes : undefined);
    if (places.length === 0) return;
    const begin = this.#clock.now();
    try {
      const local = new Set(this.#interfaces().map(({ address }) => address));
      await this.#flows.clear(places, this.#config.targets, local);
      if (!flowsCleared.hasSubscribers) return;
      const durationMs = this.#clock.now() - begin;
      flowsCleared.publish({ portal: 'nftables', places: places.length, durationMs });
    } catch (error) {
      // Clients that pause are served all the same, so the change counts as carried out.
      if (!(error instanceof KpngError)) throw error;
      if (flowsNotCleared.hasSubscribers) flowsNotCleared.publish({ portal: 'nftables', error });
    }
  }

  #repair(found: ProbeResult, first: boolean): Promise<void> {
    return this.#queue.run(async () => {
      if (first && portalLost.hasSubscribers) {
        const what = found === 'gone' ? 'are gone' : 'lead nowhere';
        const message = `the rules of the nftables table inet ${this.#config.table} ${what}`;
        portalLost.publish({ portal: 'nftables', message });
      }
      this.#table.doubt();
      this.#readHost();
      await this.#write();
    });
  }

  async #housekeeping(): Promise<void> {
    if (this.#table.takenBy !== undefined) return;
    const now = this.#clock.now();
    const readmit = this.#readmitAt !== undefined && now >= this.#readmitAt;
    const moved = now - this.#addressesReadAt >= ADDRESS_INTERVAL_MS && this.#readHost();
    if (!readmit && !moved) return;
    await this.#queue.run(async () => {
      if (readmit) {
        this.#readmitAt = undefined;
        this.#table.readmit();
      }
      if (moved) this.#table.doubt();
      await this.#write();
    });
  }

  /** Reads the host's addresses; returns whether the rules have to change. */
  #readHost(): boolean {
    this.#addressesReadAt = this.#clock.now();
    const host = this.#interfaces();
    const { targets, nodePortNetworks: networks } = this.#config;
    const now: Pick<RuleConfig, 'targets' | 'nodePortNetworks'> = {
      targets: targetsOf(this.#bound, host, targets),
      nodePortNetworks: nodePortNetworks(this.#nodePortAddresses, host),
    };
    const before = { targets, nodePortNetworks: networks };
    if (JSON.stringify(now) === JSON.stringify(before)) return false;
    this.#config = { ...this.#config, ...now };
    return true;
  }
}

function realCanary({ owner, families }: RuleConfig): Canary {
  return new Canary(owner, families.includes(4) ? 4 : 6);
}

function publishWritten({ reason, changes }: Written, durationMs: number): void {
  if (!portalWritten.hasSubscribers) return;
  portalWritten.publish({
    portal: 'nftables',
    reason,
    added: changes.filter(({ after }) => after !== undefined).length,
    removed: changes.filter(({ before }) => before !== undefined).length,
    durationMs,
  });
}
