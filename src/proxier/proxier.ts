import { isDeepStrictEqual } from 'node:util';
import { KpngError, messageOf } from '../errors.ts';
import type { Portal, ServicePortPortals } from '../portal/portal.ts';
import type { Engine } from '../proxysocket/engine.ts';
import { listenerOpened, type ListenerOpened } from '../proxysocket/events.ts';
import { isSharedSockets } from '../proxysocket/core/shared-service-ports.ts';
import type { EndpointSpec } from '../proxysocket/spec.ts';
import type { LocalChange, LocalSink } from '../store/local-view.ts';
import { Backoff, DEFAULT_BACKOFF, type BackoffPolicy } from '../util/backoff.ts';
import { systemClock, type Clock, type Timer } from '../util/clock.ts';
import { SerialQueue } from '../util/serial-queue.ts';
import { type DesiredServicePort, Wanted } from './wanted.ts';
import { Drains, type Drain, type DrainChange } from './drains.ts';
import { type Applied, EngineSync, type Step } from './engine-sync.ts';
import { proxierSynced, proxierSyncFailed, servicePortChanged, type Problem } from './events.ts';
import { portalInput, type PortalPolicy, PortalSync } from './portal-sync.ts';
import { LateClosings } from './late-listeners.ts';
import { type HolderOf, Problems } from './problems.ts';

/** Delays before rules are retried that no change set repeats. */
const RETRY: BackoffPolicy = { ...DEFAULT_BACKOFF, jitter: 0 };

/** Maximum number of times per sync that other ports are chosen for those held by other programs. */
const MAX_PORT_ROUNDS = 100;

export interface ProxierOptions {
  /** Carries the traffic. The caller closes it. */
  readonly engine: Engine;
  /** Redirects traffic to the engine. The caller closes it. */
  readonly portal: Portal;
  readonly clock?: Clock;
  /** Determines the advice. Default: this system. */
  readonly platform?: NodeJS.Platform;
  /** Describes the process that listens on a listener's address. Absent: messages do not name it. */
  readonly holderOf?: HolderOf;
  /**
   * Whether the engine holds TCP clients of service ports without endpoints; if so, they must reach it. Default: no.
   */
  readonly holds?: boolean;
  /** Networks (CIDR) of pods, whose traffic to external addresses no policy restricts. Default: none. */
  readonly podNetworks?: readonly string[];
  /** Whether only node ports are served, and no address of a service. Default: no. */
  readonly nodePortsOnly?: boolean;
}

/** The state of the proxier, for status pages. */
export interface ProxierSnapshot {
  readonly services: number;
  /** Counted once per service port. */
  readonly endpoints: number;
  readonly servicePorts: readonly DesiredServicePort[];
  readonly problems: readonly Problem[];
}

/**
 * Applies a node-local view to an engine and a portal.
 *
 * Only services that a change set names are compared with the current state. Endpoint changes go to the engine alone.
 * Otherwise the portal plans, the engine gets one batch, and the portal commits. With a redirecting portal, unneeded
 * listeners close some time later.
 *
 * A partly served service port, or a listener that cannot open, is a problem that is reported once. If the engine or
 * the portal fails as a whole, the change set is rejected, and applied with the next one.
 */
export class Proxier implements LocalSink {
  readonly #clock: Clock;
  readonly #wanted: Wanted;
  readonly #portalSync: PortalSync;
  /** Undefined if the portal does not redirect, so clients reach the listeners directly. */
  readonly #lateClosings: LateClosings | undefined;
  readonly #portal: Portal;
  #policy: PortalPolicy;
  readonly #drains = new Drains();
  /** Service ports that may differ from what the portal or the engine has. */
  readonly #due = new Set<string>();
  /** Set while work is due that no source will repeat. */
  #retry: Timer | undefined;
  readonly #engineSync: EngineSync;
  readonly #problems: Problems;
  readonly #queue = new SerialQueue();
  #closed = false;
  /** Rewrites the rules of service ports whose listeners opened late. `proxierSyncFailed` reports failures. */
  readonly #onOpened = ({ servicePort }: ListenerOpened): void => {
    if (!this.#portalSync.noteOpened(servicePort)) return;
    const commit = () => this.#attemptInBackground(() => this.#portalSync.commitLate());
    this.#queue.run(commit).catch(() => undefined);
  };

  constructor(options: ProxierOptions) {
    const { engine, portal, holds = false, podNetworks = [] } = options;
    const redirects = portal.redirects === true;
    this.#wanted = new Wanted(options.nodePortsOnly);
    this.#clock = options.clock ?? systemClock;
    this.#portal = portal;
    this.#policy = { redirects, holds, podNetworks };
    this.#portalSync = new PortalSync(portal, engine, (name) => this.#portalInput(name));
    this.#engineSync = new EngineSync(engine, (name) => this.#applied(name), redirects);
    this.#problems = new Problems({
      clock: this.#clock,
      platform: options.platform ?? process.platform,
      isOurs: (name) => this.#wanted.ports.has(name) || isSharedSockets(name),
      holderOf: options.holderOf,
    });
    if (!redirects) return;
    this.#lateClosings = new LateClosings(this.#clock, (names) =>
      this.#queue.run(() => this.#closeSurplus(names)),
    );
    listenerOpened.subscribe(this.#onOpened);
  }

  /**
   * Applies a change set, one at a time. Resolves when the engine has tried every new listener once. Rejects with
   * KPNG_SINK_FAILED if its keys have to be delivered again, and after `close`.
   */
  sync(change: LocalChange): Promise<void> {
    return this.#queue.run(() => this.#sync(change));
  }

  /**
   * Sets whether the engine holds TCP clients, or the networks of pods. Resolves when the service ports follow. Rejects
   * as `sync` does; then it is retried.
   */
  setPolicy(change: Partial<Omit<PortalPolicy, 'redirects'>>): Promise<void> {
    return this.#queue.run(async () => {
      const policy = { ...this.#policy, ...change };
      if (isDeepStrictEqual(policy, this.#policy)) return;
      this.#policy = policy;
      for (const name of this.#wanted.ports.keys()) this.#due.add(name);
      if (this.#due.size > 0) await this.#attemptInBackground(() => this.#putDue());
    });
  }

  get drains(): Omit<Drains, 'drain' | 'undrain'> {
    return this.#drains;
  }

  /** The desired endpoints of a service port, drained or not. */
  endpointsOf(servicePort: string): readonly EndpointSpec[] {
    return this.#wanted.ports.get(servicePort)?.spec.endpoints ?? [];
  }

  /**
   * Drains a target: it takes no new connections. Resolves with the affected service ports. Rejects with
   * KPNG_ADMIN_REFUSED if there are none or too many drains, and as `sync` does; nothing more is drained then.
   */
  drain(drain: Drain): Promise<readonly string[]> {
    return this.#queue.run(async () =>
      this.#putDrains(this.#drains.drain(drain, this.#wanted.ports)),
    );
  }

  /** Removes a drain; without one, all of them. Settles as `drain` does. */
  undrain(drain?: Drain): Promise<readonly string[]> {
    return this.#queue.run(async () =>
      this.#putDrains(this.#drains.undrain(drain, this.#wanted.ports)),
    );
  }

  snapshot(): ProxierSnapshot {
    this.#refreshPortalProblems();
    const { services, endpoints, ports } = this.#wanted;
    const problems = this.#problems.list();
    return { services, endpoints, servicePorts: [...ports.values()], problems };
  }

  /**
   * Accepts no more change sets; the current state stays in force. Resolves when no operation is pending. Idempotent.
   */
  async close(): Promise<void> {
    this.#closed = true;
    listenerOpened.unsubscribe(this.#onOpened);
    this.#lateClosings?.stop();
    this.#retry?.cancel();
    await this.#queue.idle();
    this.#problems.close();
  }

  /** Re-reads the services of a change set, if there is one, and applies what is due. */
  #sync(change?: LocalChange): Promise<void> {
    return this.#attempt(async (begin) => {
      const steps = await this.#problems.holdBack(() => {
        if (change !== undefined) this.#refresh(change);
        return this.#putDue();
      });
      this.#publish(steps, this.#clock.now() - begin);
    });
  }

  /** Applies the drains to the engine. Portals do not see drains: the engine resets clients with that reason. */
  async #putDrains({ names, undo }: DrainChange): Promise<readonly string[]> {
    const known = names.filter((name) => this.#engineSync.has(name));
    await this.#attemptInBackground(
      () => this.#engineSync.flush(known),
      () => {
        undo();
        // The state of the engine is unknown after a failed batch: send these service ports again.
        for (const name of known) this.#due.add(name);
      },
    );
    return names;
  }

  /** Does work that no source would repeat: if it fails, it is retried with back-off. */
  async #attemptInBackground(
    action: () => Promise<unknown>,
    onFailed: () => void = () => undefined,
  ): Promise<void> {
    try {
      await this.#attempt(() => this.#problems.holdBack(action));
    } catch (error) {
      onFailed();
      this.#catchUpLater(new Backoff(RETRY, () => 0));
      throw error;
    }
  }

  #catchUpLater(backoff: Backoff): void {
    if (this.#closed || this.#retry !== undefined) return;
    this.#retry = this.#clock.setTimer(backoff.next(), () => {
      this.#retry = undefined;
      this.#queue
        .run(async () => {
          if (!this.#closed) await this.#sync();
        })
        // `proxierSyncFailed` reports it.
        .catch(() => this.#catchUpLater(backoff));
    });
  }

  async #closeSurplus(names: readonly string[]): Promise<void> {
    if (this.#closed) return;
    try {
      await this.#attempt(() => this.#engineSync.closeSurplus(names));
    } catch {
      // The failure is already reported; retried after the same delay.
      this.#lateClosings?.add(this.#engineSync.surplus());
    }
  }

  async #attempt(action: (begin: number) => Promise<unknown>): Promise<void> {
    if (this.#closed) throw new KpngError('KPNG_SINK_FAILED', 'the proxier is closed');
    const begin = this.#clock.now();
    try {
      await action(begin);
    } catch (cause) {
      const reason = messageOf(cause);
      const message = `service ports could not be changed: ${reason}`;
      const error = new KpngError('KPNG_SINK_FAILED', message, { cause });
      proxierSyncFailed.publish({ durationMs: this.#clock.now() - begin, error });
      throw error;
    }
  }

  /** Applies the desired state of the service ports that are due; they stay due if that fails. */
  async #putDue(): Promise<readonly Step[]> {
    const due = this.#due;
    const plan = this.#portalSync.plan(due);
    if (plan !== undefined) {
      for (const name of plan.keys()) due.add(name);
      this.#refreshPortalProblems();
      await this.#portal.prepare?.();
    }
    for (const name of due) this.#lateClosings?.forget(name);
    const steps = await this.#engineSync.flush(due);
    await this.#moveTakenPorts();
    await this.#portalSync.commit();
    this.#lateClosings?.add(this.#engineSync.surplus());
    this.#retry?.cancel();
    this.#retry = undefined;
    this.#refreshPortalProblems();
    // Not earlier: until the engine had the batch, it could still retry listeners that are released.
    this.#problems.keepListeners(due, (servicePort) => {
      const protocol = this.#wanted.ports.get(servicePort)?.spec.protocol;
      if (protocol === undefined) return [];
      return this.#portalSync
        .listen(servicePort)
        .map((listen) => ({ servicePort, protocol, listen }));
    });
    due.clear();
    return steps;
  }

  /** Chooses other proxy ports for those held by other programs. */
  async #moveTakenPorts(): Promise<void> {
    for (let round = 0; round < MAX_PORT_ROUNDS; round += 1) {
      const plan = this.#portalSync.replan();
      if (plan === undefined) return;
      for (const name of plan.keys()) this.#due.add(name);
      await this.#engineSync.flush(plan.keys());
    }
  }

  /** The kernel's rejections are known only after the commit, and may end without a change set. */
  #refreshPortalProblems(): void {
    this.#problems.ofPortals(this.#portal.problems());
  }

  #portalInput(name: string): ServicePortPortals | undefined {
    const port = this.#wanted.ports.get(name);
    return port && portalInput(port, this.#policy);
  }

  /** With rules, clients use addresses on which the engine does not listen, so the engine is given them. */
  #applied(name: string): Applied | undefined {
    const port = this.#wanted.ports.get(name);
    if (port === undefined) return undefined;
    const { spec, portals } = port;
    const listen = this.#portalSync.listen(name);
    const isElsewhere =
      this.#policy.redirects &&
      spec.protocol === 'TCP' &&
      listen.every(({ transparent }) => transparent === undefined);
    const wanted = { ...spec, listen, ...(isElsewhere && { portals }) };
    return { spec: this.#drains.specOf(wanted), portals };
  }

  #refresh({ view, changed }: LocalChange): void {
    for (const key of changed) {
      const { before, after } = this.#wanted.refresh(key, view);
      for (const { spec } of before.ports) this.#due.add(spec.name);
      for (const { spec } of after.ports) this.#due.add(spec.name);
      this.#problems.ofService(before.problems, after.problems);
    }
  }

  #publish(steps: readonly Step[], durationMs: number): void {
    const counts = { added: 0, changed: 0, removed: 0, endpointsChanged: 0 };
    for (const { kind, servicePort, protocol, portals } of steps) {
      counts[kind] += 1;
      if (kind !== 'endpointsChanged' && servicePortChanged.hasSubscribers) {
        servicePortChanged.publish({ kind, servicePort, protocol, portals });
      }
    }
    const { services, endpoints, ports } = this.#wanted;
    proxierSynced.publish({ durationMs, services, servicePorts: ports.size, endpoints, ...counts });
  }
}
