import { randomBytes } from 'node:crypto';
import { KpngError, messageOf } from '../../errors.ts';
import { Backoff } from '../../util/backoff.ts';
import { systemClock, type Clock } from '../../util/clock.ts';
import type { Family } from '../../util/family.ts';
import { hostAddresses, type HostAddress } from '../../util/host-addresses.ts';
import { SerialQueue } from '../../util/serial-queue.ts';
import {
  ADDRESS_INTERVAL_MS,
  type AuditPolicy,
  CANARY_INTERVAL_MS,
  CANARY_MISSES,
  FULL_AUDIT,
  TAKEN_REPORT_MS,
  WRITE_RETRY,
} from '../bounds.ts';
import { portalFailed, portalLost, portalWritten } from '../events.ts';
import { systemExec, type Exec } from '../exec.ts';
import { Audit, repairInterval } from '../audit.ts';
import type { PortAllocator } from '../proxy-ports.ts';
import type { BoundPorts, Portal, PortalProblem } from '../portal.ts';
import { RedirectPlan, type ProxyPort, type Redirect } from '../redirect-plan.ts';
import type { Backend, Element, RuleConfig, TransparentRoute } from './backend.ts';
import type { RuleCanary } from './canary.ts';
import {
  bindAddresses,
  hasBridges,
  hostFamilies,
  nodePortNetworks,
  targetsOf,
} from '../node-addresses.ts';
import { RuleSet, type Written } from './rule-set.ts';
import { UdpFlows } from './udp-flows.ts';

export type { RuleCanary } from './canary.ts';

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
  /** Whether `close` removes the rules, unless another process has taken them over. Default: they stay. */
  readonly removeOnClose?: boolean;
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
  readonly canary?: RuleKind['canary'];
}

/** How packets reach sockets unchanged. */
export interface Transparent {
  readonly route: TransparentRoute;
  /** Where the sockets that all TCP services share are bound. */
  readonly addresses: Readonly<Record<Family, string>>;
  /** The element for their port. */
  listener(port: ProxyPort): Element;
}

export interface RuleKind {
  readonly kind: Portal['kind'];
  /** How to give two processes separate rules, for a message. */
  readonly apart: string;
  /** Maximum interval between checks of the rules. Milliseconds. Default 500. */
  readonly intervalMs?: number;
  readonly backend: Backend;
  /** Packets keep their destination, and sockets have it. Absent: they are sent to proxy ports. */
  readonly transparent?: Transparent | undefined;
  /** A comparison of a part of the rules, and its interval. */
  readonly quickAudit?: {
    readonly policy: AuditPolicy;
    readonly difference: Backend['difference'];
  };
  elements(
    name: string,
    redirects: readonly Redirect[],
    proxyPorts: readonly ProxyPort[],
  ): Element[];
  readonly canary: (config: RuleConfig) => RuleCanary;
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
  readonly #options: RulePortalOptions;
  readonly #rules: RuleKind;
  readonly #clock: Clock;
  readonly #interfaces: () => readonly HostAddress[];
  readonly #nodePortAddresses: readonly string[];
  readonly #set: RuleSet;
  readonly #flows: UdpFlows;
  readonly #canary: RuleCanary;
  readonly #audits: readonly Audit[];
  readonly #retryBackoff: Backoff;
  /** The proxy ports of `listener` elements. */
  readonly #sharedPorts: Partial<Record<Family, number>> = {};
  /** Writes must not overlap. */
  readonly #queue = new SerialQueue();
  readonly #closing = new AbortController();
  #config: RuleConfig;
  #addressesReadAt: number;
  #retryAt: number | undefined;
  #canaryOpen = false;
  #misses = 0;
  /** Time to write one element, measured when all were written. */
  #perElementMs = 0;
  #removeOnClose: boolean;
  /** Another process has the rules; not reported at once, as it may be about to replace this one. */
  #taken: { readonly error: KpngError; readonly reportAt: number } | undefined;
  #starting: Promise<void> | undefined;

  /** Throws KPNG_USAGE for an invalid bind address, RangeError for node port addresses. */
  constructor(options: RulePortalOptions, rules: RuleKind) {
    const { nodePortAddresses = [], random = Math.random } = options;
    const { exec = systemExec, clock = systemClock, interfaces = hostAddresses } = options;
    const { transparent } = rules;
    const isTransparent = transparent !== undefined;
    const host = interfaces();
    const families = hostFamilies(host).filter(
      (family) => options.families?.includes(family) ?? true,
    );
    const bound =
      transparent === undefined
        ? bindAddresses(options.bindAddress ?? '0.0.0.0', families)
        : Object.fromEntries(families.map((family) => [family, transparent.addresses[family]]));
    super({ allocator: options.allocator, bindAddresses: bound, transparent: isTransparent });
    this.kind = rules.kind;
    this.#options = options;
    this.#rules = rules;
    this.#clock = clock;
    this.#interfaces = interfaces;
    this.#nodePortAddresses = nodePortAddresses;
    this.#removeOnClose = options.removeOnClose ?? false;
    this.#config = {
      owner: options.owner ?? randomBytes(6).toString('hex'),
      families,
      targets: targetsOf(bound, host, undefined),
      nodePortNetworks: nodePortNetworks(nodePortAddresses, host),
      ...(transparent !== undefined && { route: transparent.route, hasBridges: hasBridges() }),
    };
    this.#addressesReadAt = clock.now();
    this.#set = new RuleSet(rules);
    this.#flows = new UdpFlows({ portal: this.kind, exec, clock, interfaces, isTransparent });
    this.#canary = (options.canary ?? rules.canary)(this.#config);
    this.#retryBackoff = new Backoff(WRITE_RETRY, random);
    const { backend, quickAudit } = rules;
    const comparing = (policy: AuditPolicy, compare: Backend['difference']) => ({
      policy: () => policy,
      look: async () => {
        const difference = await this.#set.difference(this.#config, compare);
        return difference && `${backend.what}: ${difference}`;
      },
    });
    this.#audits = [
      { policy: () => this.#canaryPolicy(), look: () => this.#lookAtCanary() },
      comparing(FULL_AUDIT, backend.difference.bind(backend)),
      ...(quickAudit === undefined ? [] : [comparing(quickAudit.policy, quickAudit.difference)]),
    ].map(
      ({ policy, look }) => new Audit({ clock, policy, check: async () => this.#repairOf(look) }),
    );
  }

  override problems(): PortalProblem[] {
    return [...super.problems(), ...this.#set.refused];
  }

  /** Writes the difference in one transaction. Rejects with KPNG_PORTAL_*; the next commit retries it. */
  commit(bound: Iterable<BoundPorts>): Promise<void> {
    return this.#queue.run(async () => {
      const names = [...this.settle(bound)];
      // Before the services, so that its packets do not have to pass all their rules.
      await this.#openCanary();
      for (const name of names) this.#update(name);
      await this.#write();
      for (const audit of this.#audits) audit.start();
      this.#starting ??= this.#options.afterStart?.(this.#closing.signal);
    });
  }

  leave(): void {
    this.#removeOnClose = false;
  }

  /**
   * Stops watching. The rules stay, or are removed with `removeOnClose`; rejects with KPNG_PORTAL_* if that fails.
   * Idempotent.
   */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([...this.#audits.map((audit) => audit.close()), this.#starting]);
    await this.#queue.run(async () => {
      if (!this.#removeOnClose) return;
      await this.#rules.backend.remove(this.#config);
      // Without the rules, connection tracking would still send clients to closed proxy ports.
      await this.#flows.clear('removed', this.#config.targets);
    });
    this.#canary.close();
  }

  #update(name: string): void {
    const redirects = this.redirectsOf(name);
    const proxyPorts = this.proxyPortsOf(name);
    this.#set.set(name, this.#rules.elements(name, redirects, proxyPorts));
    this.#flows.set(name, redirects);
    const { transparent } = this.#rules;
    if (transparent === undefined) return;
    // Service ports share these sockets, which therefore need only one element.
    for (const each of proxyPorts) {
      const { family, protocol, port } = each;
      if (protocol !== 'TCP' || this.#sharedPorts[family] === port) continue;
      this.#set.set(`listener ${family}`, [transparent.listener(each)]);
      this.#sharedPorts[family] = port;
    }
  }

  async #openCanary(): Promise<void> {
    if (this.#canaryOpen) return;
    try {
      this.#set.set('canary', await this.#canary.open());
    } catch (cause) {
      // Some of its ports may be open.
      this.#canary.close();
      const message = `opening the canary's port: ${messageOf(cause)}`;
      throw new KpngError('KPNG_PORTAL_FAILED', message, { cause });
    }
    this.#canaryOpen = true;
  }

  /** `loss`: the damage that it repairs. */
  async #write(loss?: string): Promise<void> {
    const begin = this.#clock.now();
    let written: Written | undefined;
    try {
      written = await this.#set.write(this.#config);
      this.#publishLoss(loss);
    } catch (error) {
      // Only a commit is retried by its caller.
      this.#scheduleRetry();
      if (error instanceof KpngError && error.code === 'KPNG_PORTAL_TAKEN') {
        this.#taken ??= { error, reportAt: this.#clock.now() + TAKEN_REPORT_MS };
      } else {
        this.#publishLoss(loss);
        this.#publishFailure(error);
      }
      throw error;
    }
    this.#taken = undefined;
    if (this.#set.refused.length === 0) {
      this.#retryAt = undefined;
      this.#retryBackoff.reset();
    } else {
      this.#scheduleRetry();
    }
    if (written === undefined) return;
    const durationMs = this.#clock.now() - begin;
    if (written.reason === 'start') this.#perElementMs = durationMs / Math.max(1, this.#set.size);
    portalWritten.publish({ portal: this.kind, ...written, durationMs });
    await this.#flows.clear(written.reason, this.#config.targets);
  }

  #publishLoss(message: string | undefined): void {
    if (message !== undefined) portalLost.publish({ portal: this.kind, message });
  }

  #publishFailure(error: unknown): void {
    if (error instanceof KpngError) portalFailed.publish({ portal: this.kind, error });
  }

  #scheduleRetry(): void {
    this.#retryAt ??= this.#clock.now() + this.#retryBackoff.next();
  }

  #canaryPolicy(): AuditPolicy {
    const { intervalMs = CANARY_INTERVAL_MS } = this.#rules;
    const interval = repairInterval(intervalMs, this.#perElementMs * this.#set.size);
    return { intervalMs: interval, goalMs: Infinity, maxMs: interval };
  }

  async #lookAtCanary(): Promise<string | undefined> {
    const found = await this.#canary.probe(this.#set.takenBy ?? this.#config.owner);
    this.#misses = found === 'silent' ? this.#misses + 1 : 0;
    const { what } = this.#rules.backend;
    if (found === 'gone') return `rules of ${what} are gone`;
    if (this.#misses >= CANARY_MISSES) return `rules of ${what} drop packets`;
    if (found === 'alive') await this.#housekeeping().catch(() => undefined);
    return undefined;
  }

  /** Looks for damage, and resolves with its repair. A transaction may repair it, or may have caused what was seen. */
  async #repairOf(
    look: () => Promise<string | undefined>,
  ): Promise<(() => Promise<void>) | undefined> {
    const { transactions } = this.#set;
    const isCurrent = (): boolean => this.#set.transactions === transactions;
    if (transactions % 2 === 1) return undefined;
    const damage = await look();
    if (damage === undefined || !isCurrent()) return undefined;
    return () =>
      this.#queue.run(async () => {
        if (!isCurrent()) return;
        // A loss is reported once, however often its repair fails.
        const loss = this.#set.doubt() ? damage : undefined;
        this.#readHost();
        await this.#write(loss);
      });
  }

  async #housekeeping(): Promise<void> {
    const now = this.#clock.now();
    if (this.#set.takenBy !== undefined) {
      if (this.#taken === undefined || now < this.#taken.reportAt) return;
      this.#publishFailure(this.#taken.error);
      this.#taken = { ...this.#taken, reportAt: Infinity };
      return;
    }
    const retry = this.#retryAt !== undefined && now >= this.#retryAt;
    const moved = now - this.#addressesReadAt >= ADDRESS_INTERVAL_MS && this.#readHost();
    if (!retry && !moved) return;
    await this.#queue.run(async () => {
      if (retry) {
        this.#retryAt = undefined;
        this.#set.readmit();
      }
      if (moved) this.#set.doubt();
      await this.#write();
    });
  }

  /** Reads the host's addresses; returns whether the rules have to change. */
  #readHost(): boolean {
    this.#addressesReadAt = this.#clock.now();
    const host = this.#interfaces();
    const next: RuleConfig = {
      ...this.#config,
      targets: targetsOf(this.bindAddresses, host, this.#config.targets),
      nodePortNetworks: nodePortNetworks(this.#nodePortAddresses, host),
      ...(this.#rules.transparent !== undefined && { hasBridges: hasBridges() }),
    };
    if (JSON.stringify(next) === JSON.stringify(this.#config)) return false;
    this.#config = next;
    return true;
  }
}
