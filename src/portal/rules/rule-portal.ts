import { randomBytes } from 'node:crypto';
import { KpngError, messageOf } from '../../errors.ts';
import type { ListenSpec } from '../../proxysocket/spec.ts';
import { Backoff, type BackoffPolicy } from '../../util/backoff.ts';
import { systemClock, type Clock } from '../../util/clock.ts';
import type { Family } from '../../util/family.ts';
import { hostAddresses, type HostAddress } from '../../util/host-addresses.ts';
import { SerialQueue } from '../../util/serial-queue.ts';
import { ADDRESS_INTERVAL_MS, FULL_AUDIT, type AuditPolicy } from '../bounds.ts';
import {
  flowsCleared,
  flowsNotCleared,
  portalFailed,
  portalLost,
  portalWritten,
} from '../events.ts';
import { systemExec, type Exec } from '../exec.ts';
import { clearFlows, type FlowAddress } from '../flows.ts';
import { auditor, Guard, Pace, type ProbeResult, type Repeater } from '../watch.ts';
import type { PortAllocator } from '../proxy-ports.ts';
import type { Portal, PortalPlan, PortalProblem, ServicePortPortals } from '../portal.ts';
import { RedirectPlan, type ProxyPort, type Redirect } from '../redirect-plan.ts';
import {
  type Backend,
  flowItemsOf,
  flowAddresses,
  type FlowSet,
  isFlowSet,
  type Item,
  type RuleConfig,
  type Transparent,
} from './items.ts';
import { bindAddresses, hostFamilies, nodePortNetworks, targetsOf } from './host.ts';
import { RuleSet, type Written } from './rule-set.ts';

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
  /** Interval of the full comparison of the rules. Milliseconds. Default: a minute. */
  readonly auditMs?: number;
  readonly clock?: Clock;
  /** Default: `Math.random`. */
  readonly random?: () => number;
}

/** How one kind of rules is watched. */
export interface RuleCanary<Name extends string> {
  /** Opens its ports and returns the items that redirect to them. Once only. */
  open(): Promise<Item<Name>[]>;
  /** Whether the rules of an owner, by default this process, exist. */
  probe(owner?: string): Promise<ProbeResult>;
  /** The process id of the owner of rules under this name, if known. */
  pidOf?(owner: string): Promise<number | undefined>;
  /** Idempotent. */
  close(): void;
}

/** One kind of rules. */
export interface RuleKind<Name extends string> {
  readonly kind: Portal['kind'];
  /** How to give two processes separate rules, for a message. */
  readonly apart: string;
  /** Maximum interval between checks of the rules. Milliseconds. Default 500. */
  readonly intervalMs?: number;
  readonly backend: Backend<Name | FlowSet>;
  /** Packets keep their destination, and sockets have it. Absent: they are sent to proxy ports. */
  readonly transparent?: Transparent<Name> | undefined;
  /** What a full check compares, and its interval. */
  readonly quickAudit?: {
    readonly policy: AuditPolicy;
    readonly difference: Backend<Name | FlowSet>['difference'];
  };
  /** The items of one service port. */
  items(
    name: string,
    redirects: readonly Redirect[],
    proxyPorts: readonly ProxyPort[],
  ): Item<Name>[];
  canary(config: RuleConfig): RuleCanary<Name>;
}

/** Delays before service ports rejected by the kernel are retried. */
const READMIT_BACKOFF: BackoffPolicy = {
  initialMs: 2_000,
  maxMs: 600_000,
  factor: 2,
  jitter: 0.2,
};

/**
 * Redirects traffic to the proxy ports with kernel rules.
 *
 * Each commit is one transaction with the difference; the first one replaces our rules, so a restart leaves no gap.
 * Rules stay when the process ends.
 *
 * A canary and comparisons detect damage, which is repaired. If another process of ours takes over the rules, this
 * one does not write until that process has ended.
 */
export class RulePortal<Name extends string> implements Portal {
  readonly kind: Portal['kind'];
  readonly redirects = true;
  readonly #options: RulePortalOptions;
  readonly #rules: RuleKind<Name>;
  readonly #clock: Clock;
  readonly #interfaces: () => readonly HostAddress[];
  readonly #nodePortAddresses: readonly string[];
  readonly #bound: Readonly<Partial<Record<Family, string>>>;
  readonly #plan: RedirectPlan;
  readonly #set: RuleSet<Name | FlowSet>;
  readonly #exec: Exec;
  readonly #canary: RuleCanary<Name>;
  readonly #pace: Pace;
  readonly #guard: Guard;
  readonly #auditors: readonly { readonly repeater: Repeater; readonly intervalMs: number }[];
  readonly #readmitBackoff: Backoff;
  /** Writes must not overlap. */
  readonly #queue = new SerialQueue();
  readonly #closing = new AbortController();
  #config: RuleConfig;
  #addressesReadAt: number;
  #readmitAt: number | undefined;
  #canaryOpen = false;
  #removeOnClose: boolean;
  /** The pending `afterStart`. */
  #starting: Promise<void> | undefined;

  /** Throws KPNG_USAGE for an invalid bind address, RangeError for node port addresses. */
  constructor(options: RulePortalOptions, rules: RuleKind<Name>) {
    const { nodePortAddresses = [], random = Math.random } = options;
    const { exec = systemExec, clock = systemClock, interfaces = hostAddresses } = options;
    this.kind = rules.kind;
    this.#options = options;
    this.#rules = rules;
    this.#clock = clock;
    this.#interfaces = interfaces;
    this.#nodePortAddresses = nodePortAddresses;
    this.#removeOnClose = options.removeOnClose ?? false;
    const host = interfaces();
    const families = hostFamilies(host).filter(
      (family) => options.families?.includes(family) ?? true,
    );
    const { transparent } = rules;
    this.#bound =
      transparent === undefined
        ? bindAddresses(options.bindAddress ?? '0.0.0.0', families)
        : Object.fromEntries(families.map((family) => [family, transparent.addresses[family]]));
    this.#config = {
      owner: options.owner ?? randomBytes(6).toString('hex'),
      families,
      targets: targetsOf(this.#bound, host, undefined),
      nodePortNetworks: nodePortNetworks(nodePortAddresses, host),
      ...(transparent !== undefined && { route: transparent.route }),
    };
    this.#addressesReadAt = clock.now();
    this.#plan = new RedirectPlan({
      allocator: options.allocator,
      bindAddresses: this.#bound,
      transparent: transparent !== undefined,
    });
    this.#set = new RuleSet<Name | FlowSet>({
      ...rules,
      pidOf: async (owner) => this.#canary.pidOf?.(owner),
    });
    this.#exec = exec;
    this.#canary = rules.canary(this.#config);
    this.#pace = new Pace(rules.intervalMs);
    this.#readmitBackoff = new Backoff(READMIT_BACKOFF, random);
    this.#guard = new Guard({
      clock,
      random,
      interval: () => this.#pace.intervalMs,
      check: () => this.#canary.probe(this.#set.takenBy ?? this.#config.owner),
      housekeeping: () => this.#housekeeping(),
      repair: (found, first) => this.#repair(found, first),
    });
    const { backend, quickAudit } = rules;
    const policy = { ...FULL_AUDIT, intervalMs: options.auditMs ?? FULL_AUDIT.intervalMs };
    const full = { policy, difference: backend.difference.bind(backend) };
    this.#auditors = [full, ...(quickAudit === undefined ? [] : [quickAudit])].map((each) => ({
      repeater: auditor(clock, each.policy, () => this.#audit(each.difference)),
      intervalMs: each.policy.intervalMs,
    }));
  }

  plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    const { listen } = this.#plan.plan(set, remove);
    return { listen, problems: this.problems() };
  }

  portTaken(servicePort: string, listen: ListenSpec): void {
    this.#plan.portTaken(servicePort, listen);
  }

  problems(): readonly PortalProblem[] {
    return [...this.#plan.problems(), ...this.#set.refused];
  }

  /** Writes the difference in one transaction. Rejects with KPNG_PORTAL_*; the next commit retries it. */
  commit(
    bound: ReadonlyMap<string, readonly { listen: ListenSpec; boundPort: number }[]>,
  ): Promise<void> {
    return this.#queue.run(async () => {
      const names = [...this.#plan.settle(bound)];
      // Before the services, so that its packets do not have to pass all their rules.
      await this.#openCanary();
      this.#set.replace(new Map(names.map((name) => [name, this.#itemsOf(name)])));
      this.#noteListeners(names);
      await this.#write();
      this.#guard.start();
      for (const { repeater, intervalMs } of this.#auditors) repeater.start(intervalMs);
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
    const auditors = this.#auditors.map(({ repeater }) => repeater.close());
    await Promise.all([this.#guard.close(), ...auditors, this.#starting]);
    await this.#queue.run(async () => {
      if (!this.#removeOnClose) return;
      await this.#set.remove(this.#config);
      if (this.#rules.transparent !== undefined) return;
      // Without the rules, connection tracking would still send clients to closed proxy ports.
      await this.#clear(flowAddresses(this.#set, 'removed'));
    });
    this.#canary.close();
  }

  #itemsOf(name: string): Item<Name | FlowSet>[] {
    const redirects = this.#plan.redirects(name);
    const items = this.#rules.items(name, redirects, this.#plan.proxyPorts(name));
    return [...items, ...flowItemsOf(redirects)];
  }

  /** Service ports share these sockets, which therefore need only one item. */
  #noteListeners(names: readonly string[]): void {
    const { transparent } = this.#rules;
    if (transparent === undefined) return;
    for (const name of names) {
      for (const port of this.#plan.proxyPorts(name)) {
        if (port.protocol !== 'TCP') continue;
        this.#set.replace(new Map([[`listener ${port.family}`, [transparent.listener(port)]]]));
      }
    }
  }

  async #openCanary(): Promise<void> {
    if (this.#canaryOpen) return;
    try {
      this.#set.add(await this.#canary.open());
    } catch (cause) {
      // Some of its ports may be open.
      this.#canary.close();
      const message = `opening the canary's port: ${messageOf(cause)}`;
      throw new KpngError('KPNG_PORTAL_FAILED', message, { cause });
    }
    this.#canaryOpen = true;
  }

  async #write(): Promise<void> {
    const begin = this.#clock.now();
    let written: Written | undefined;
    try {
      written = await this.#set.write(this.#config);
    } catch (error) {
      if (error instanceof KpngError && portalFailed.hasSubscribers) {
        portalFailed.publish({ portal: this.kind, error });
      }
      throw error;
    }
    if (this.#set.refused.length === 0) {
      this.#readmitAt = undefined;
      this.#readmitBackoff.reset();
    } else {
      this.#readmitAt ??= this.#clock.now() + this.#readmitBackoff.next();
    }
    if (written === undefined) return;
    const durationMs = this.#clock.now() - begin;
    this.#pace.note(written, durationMs);
    this.#publishWritten(written, durationMs);
    const { reason, changes } = written;
    // Connection tracking does not redirect these flows; only rules that were there before may have.
    if (this.#rules.transparent !== undefined && reason !== 'start') return;
    await this.#clear(flowAddresses(this.#set, reason === 'change' ? changes : 'all'));
  }

  #publishWritten({ reason, changes }: Written, durationMs: number): void {
    if (!portalWritten.hasSubscribers) return;
    const rules = changes.filter(({ set }) => !isFlowSet(set));
    const added = rules.filter(({ after }) => after !== undefined).length;
    const removed = rules.filter(({ before }) => before !== undefined).length;
    portalWritten.publish({ portal: this.kind, reason, added, removed, durationMs });
  }

  async #clear(addresses: readonly FlowAddress[]): Promise<void> {
    if (addresses.length === 0) return;
    const begin = this.#clock.now();
    try {
      const local = new Set(this.#interfaces().map(({ address }) => address));
      await clearFlows(this.#exec, addresses, this.#config.targets, local);
      if (!flowsCleared.hasSubscribers) return;
      const durationMs = this.#clock.now() - begin;
      flowsCleared.publish({ portal: this.kind, addresses: addresses.length, durationMs });
    } catch (error) {
      // Clients that pause are served anyway, so the change counts as applied.
      if (!(error instanceof KpngError)) throw error;
      if (flowsNotCleared.hasSubscribers) flowsNotCleared.publish({ portal: this.kind, error });
    }
  }

  #repair(found: ProbeResult, first: boolean): Promise<void> {
    return this.#queue.run(async () => {
      const what = found === 'gone' ? 'are gone' : 'drop packets';
      if (first) this.#publishLost(`rules of ${this.#rules.backend.what} ${what}`);
      this.#set.doubt();
      this.#readHost();
      await this.#write();
    });
  }

  /** Compares the rules; resolves with the repair if they differ. */
  async #audit(
    compare: Backend<Name | FlowSet>['difference'],
  ): Promise<(() => Promise<void>) | undefined> {
    const difference = await this.#set.difference(this.#config, compare);
    if (difference === undefined) return undefined;
    const { steps } = this.#set;
    return () =>
      this.#queue.run(async () => {
        // The canary may have triggered a repair meanwhile.
        if (this.#set.steps !== steps) return;
        this.#publishLost(`${this.#rules.backend.what}: ${difference}`);
        this.#set.doubt();
        await this.#write();
      });
  }

  #publishLost(message: string): void {
    if (portalLost.hasSubscribers) portalLost.publish({ portal: this.kind, message });
  }

  async #housekeeping(): Promise<void> {
    if (this.#set.takenBy !== undefined) return;
    const now = this.#clock.now();
    const readmit = this.#readmitAt !== undefined && now >= this.#readmitAt;
    const moved = now - this.#addressesReadAt >= ADDRESS_INTERVAL_MS && this.#readHost();
    if (!readmit && !moved) return;
    await this.#queue.run(async () => {
      if (readmit) {
        this.#readmitAt = undefined;
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
      targets: targetsOf(this.#bound, host, this.#config.targets),
      nodePortNetworks: nodePortNetworks(this.#nodePortAddresses, host),
    };
    if (JSON.stringify(next) === JSON.stringify(this.#config)) return false;
    this.#config = next;
    return true;
  }
}
