import { randomBytes } from 'node:crypto';
import { KpngError } from '../../errors.ts';
import { Backoff } from '../../util/backoff.ts';
import { systemClock, type Clock } from '../../util/clock.ts';
import { isEqual } from '../../util/compare.ts';
import type { Family } from '../../util/family.ts';
import { hostAddresses, type HostAddress } from '../../util/host-addresses.ts';
import { SerialQueue } from '../../util/serial-queue.ts';
import {
  ADDRESS_INTERVAL_MS,
  type AuditPolicy,
  CANARY_AUDIT,
  CANARY_MISSES,
  TAKEN_REPORT_MS,
  WRITE_RETRY,
} from '../bounds.ts';
import { portalFailed, portalLost, portalWritten } from '../events.ts';
import { systemExec, type Exec } from '../exec.ts';
import { audit } from '../audit.ts';
import {
  bindAddresses,
  hasBridges,
  hostFamilies,
  nodePortNetworks,
  targetsOf,
} from '../node-addresses.ts';
import type { PortAllocator } from '../proxy-ports.ts';
import type { BoundPorts, Portal, PortalProblem } from '../portal.ts';
import { RedirectPlan } from '../redirect-plan.ts';
import { type Backend, type RuleCanary, type RuleConfig, SHARED_ADDRESS } from './backend.ts';
import { RuleSet } from './rule-set.ts';
import { UdpFlows } from './udp-flows.ts';

export interface RulePortalOptions {
  readonly allocator: PortAllocator;
  /**
   * Where proxy ports listen. Default `0.0.0.0`: all addresses of both families. Any other address serves its family
   * only.
   */
  readonly bindAddress?: string;
  /** Node addresses with node ports: networks, addresses, `primary`, `localhost`, `all`. Default: all. */
  readonly nodePortAddresses?: readonly string[];
  /** Restricts the host's families. Default: all. */
  readonly families?: readonly Family[];
  /** Runs once, after the first write. Must not reject; `close` aborts it and waits for it. */
  readonly afterStart?: (signal: AbortSignal) => Promise<void>;
  /** Identifies this process's rules: 12 hexadecimal digits. Default: random. */
  readonly owner?: string;
  /** The host's addresses now; by default from Node. */
  readonly interfaces?: () => readonly HostAddress[];
  readonly exec?: Exec;
  readonly clock?: Clock;
  readonly random?: () => number;
  /** Replaces the canary of the rules. */
  readonly canary?: Backend['canary'];
}

/**
 * Redirects traffic to the proxy ports with kernel rules.
 *
 * Each commit is one transaction with the difference; the first one replaces our rules, so a restart leaves no gap.
 * Rules stay when the process ends.
 *
 * A canary and comparisons detect damage, which is repaired. If another process of ours takes over the rules, this
 * one does not write until that process has ended.
 */
export class RulePortal extends RedirectPlan implements Portal {
  readonly kind: Portal['kind'];
  readonly redirects = true;
  readonly #backend: Backend;
  readonly #clock: Clock;
  /** Reads the host's addresses. */
  readonly #readConfig: (previous?: RuleConfig) => RuleConfig;
  readonly #afterStart: RulePortalOptions['afterStart'];
  readonly #set: RuleSet;
  readonly #flows: UdpFlows;
  readonly #canary: RuleCanary;
  readonly #retryBackoff: Backoff;
  /** Writes must not overlap. */
  readonly #queue = new SerialQueue();
  readonly #closing = new AbortController();
  #config: RuleConfig;
  #addressesReadAt: number;
  #retryAt: number | undefined;
  #canaryOpen = false;
  #misses = 0;
  /** When to report that another process has the rules: it may be about to replace this one. */
  #takenReportAt = Infinity;
  /** What runs since the first write. */
  #watching: Promise<unknown> | undefined;

  /** Throws KPNG_USAGE for an invalid bind address, RangeError for node port addresses. */
  constructor(options: RulePortalOptions, backend: Backend) {
    const { allocator, bindAddress = '0.0.0.0', nodePortAddresses = [], random } = options;
    const { exec = systemExec, clock = systemClock, interfaces = hostAddresses } = options;
    const { kind, route } = backend;
    const isTransparent = route !== undefined;
    const families = hostFamilies(interfaces()).filter(
      (family) => options.families?.includes(family) ?? true,
    );
    const bound = isTransparent
      ? Object.fromEntries(families.map((family) => [family, SHARED_ADDRESS[family]]))
      : bindAddresses(bindAddress, families);
    super(allocator, bound, isTransparent);
    this.kind = kind;
    this.#backend = backend;
    this.#clock = clock;
    const owner = options.owner ?? randomBytes(6).toString('hex');
    this.#readConfig = (previous) => {
      const host = interfaces();
      return {
        owner,
        families,
        targets: targetsOf(bound, host, previous?.targets),
        nodePortNetworks: nodePortNetworks(nodePortAddresses, host),
        ...(isTransparent && { route, hasBridges: hasBridges() }),
      };
    };
    this.#config = this.#readConfig();
    this.#afterStart = options.afterStart;
    this.#addressesReadAt = clock.now();
    this.#set = new RuleSet(backend);
    const redirects = () => [...this.names].flatMap((name) => this.redirectsOf(name));
    const flows = { portal: kind, exec, clock, interfaces, isTransparent, redirects };
    this.#flows = new UdpFlows(flows);
    this.#canary = options.canary?.(this.#config) ?? backend.canary(this.#config);
    this.#retryBackoff = new Backoff(WRITE_RETRY, random ?? Math.random);
  }

  override problems(): PortalProblem[] {
    return [...super.problems(), ...this.#set.refused];
  }

  /** Routes take several programs: before the first rules, they run while the engine opens its listeners. */
  async prepare(): Promise<void> {
    if (this.#watching === undefined) this.#backend.prepare?.(this.#config);
  }

  /** Writes the difference in one transaction. Rejects with KPNG_PORTAL_*; the next commit retries it. */
  commit(bound: Iterable<BoundPorts>): Promise<void> {
    return this.#queue.run(async () => {
      const names = [...this.settle(bound)];
      // Before the services, so that its packets do not have to pass all their rules.
      if (!this.#canaryOpen) this.#set.set('canary', await this.#canary.open());
      this.#canaryOpen = true;
      for (const name of names) this.#update(name);
      await this.#write();
      this.#watching ??= this.#watch(this.#closing.signal);
    });
  }

  /** Stops watching. Rejects with KPNG_PORTAL_* if the rules cannot be removed. See `Portal`. */
  async close(removes = false): Promise<void> {
    this.#closing.abort();
    await this.#watching;
    await this.#queue.run(async () => {
      if (!removes) return;
      await this.#backend.remove(this.#config);
      // Without the rules, connection tracking would still send clients to closed proxy ports.
      await this.#flows.clear('removed', this.#config.targets);
    });
    await this.#flows.idle();
    this.#canary.close();
  }

  #update(name: string): void {
    const { listener } = this.#backend;
    const redirects = this.redirectsOf(name);
    const proxyPorts = listener === undefined ? this.proxyPortsOf(name) : [];
    this.#set.set(name, this.#backend.elements(name, redirects, proxyPorts));
    this.#flows.set(name, redirects);
    // TCP service ports share these sockets, which therefore need only one element.
    if (listener === undefined) return;
    for (const { family, portal, proxyPort: port } of redirects) {
      if (portal.protocol !== 'TCP' || port === undefined) continue;
      this.#set.set(`listener ${family}`, [listener({ family, protocol: 'TCP', port })]);
    }
  }

  /** `loss`: the damage that it repairs. */
  async #write(loss?: string): Promise<void> {
    const begin = this.#clock.now();
    const wasTaken = this.#set.taken !== undefined;
    const [outcome] = await Promise.allSettled([this.#set.write(this.#config)]);
    const isTaken = this.#set.taken !== undefined;
    if (loss !== undefined && !isTaken) portalLost.publish({ portal: this.kind, message: loss });
    // Only a commit is retried by its caller.
    if (outcome.status === 'rejected' || this.#set.refused.length > 0) {
      this.#retryAt ??= this.#clock.now() + this.#retryBackoff.next();
    } else {
      this.#retryAt = undefined;
      this.#retryBackoff.reset();
    }
    if (outcome.status === 'rejected') {
      if (!isTaken) this.#publishFailure(outcome.reason);
      else if (!wasTaken) this.#takenReportAt = this.#clock.now() + TAKEN_REPORT_MS;
      throw outcome.reason;
    }
    if (outcome.value === undefined) return;
    const durationMs = this.#clock.now() - begin;
    portalWritten.publish({ portal: this.kind, ...outcome.value, durationMs });
    await this.#flows.clear(outcome.value.reason, this.#config.targets);
  }

  #publishFailure(error: unknown): void {
    if (error instanceof KpngError) portalFailed.publish({ portal: this.kind, error });
  }

  /** Looks for damage, and repairs it, until the signal aborts. */
  #watch(signal: AbortSignal): Promise<unknown> {
    const watch = (policy: AuditPolicy, look: () => Promise<string | undefined>): Promise<void> =>
      audit(policy, () => this.#repair(look), this.#clock, signal);
    return Promise.all([
      watch(CANARY_AUDIT, () => this.#lookAtCanary()),
      ...this.#backend.comparisons.map(({ policy, difference }) =>
        watch(policy, () => this.#set.difference(this.#config, difference)),
      ),
      this.#afterStart?.(signal),
    ]);
  }

  async #lookAtCanary(): Promise<string | undefined> {
    const found = await this.#canary.probe(this.#set.taken?.owner ?? this.#config.owner);
    this.#misses = found === 'silent' ? this.#misses + 1 : 0;
    const { what } = this.#backend;
    if (found === 'gone') return `rules of ${what} are gone`;
    if (this.#misses >= CANARY_MISSES) return `rules of ${what} drop packets`;
    if (found === 'alive') await this.#housekeeping().catch(() => undefined);
    return undefined;
  }

  /** Looks for damage, and repairs it; returns whether there was any. */
  async #repair(look: () => Promise<string | undefined>): Promise<boolean> {
    const { transactions } = this.#set;
    // Without a result, the next one is not delayed.
    const damage = await look().catch(() => undefined);
    if (damage === undefined || this.#closing.signal.aborted) return false;
    await this.#queue.run(async () => {
      // A transaction may have repaired it, or may have caused what was seen.
      if (this.#set.transactions !== transactions) return;
      // A loss is reported once, however often its repair fails.
      const loss = this.#set.doubt() ? damage : undefined;
      this.#readHost();
      await this.#write(loss);
    });
    return true;
  }

  async #housekeeping(): Promise<void> {
    const now = this.#clock.now();
    if (this.#set.taken !== undefined) {
      if (now < this.#takenReportAt) return;
      this.#takenReportAt = Infinity;
      this.#publishFailure(this.#set.taken.error);
      return;
    }
    const retry = this.#retryAt !== undefined && now >= this.#retryAt;
    const moved = now - this.#addressesReadAt >= ADDRESS_INTERVAL_MS && this.#readHost();
    if (!retry && !moved) return;
    await this.#queue.run(async () => {
      this.#retryAt = undefined;
      this.#set.readmit();
      if (moved) this.#set.doubt();
      await this.#write();
    });
  }

  /** Reads the host's addresses; returns whether the rules have to change. */
  #readHost(): boolean {
    this.#addressesReadAt = this.#clock.now();
    const next = this.#readConfig(this.#config);
    if (isEqual(next, this.#config)) return false;
    this.#config = next;
    return true;
  }
}
