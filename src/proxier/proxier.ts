import { KpngError, messageOf } from '../errors.ts';
import { listenerIndex } from '../portal/listen-plan.ts';
import type { Portal, PortalPlan, ServicePortPortals } from '../portal/portal.ts';
import type { Engine } from '../proxysocket/engine.ts';
import { listenerOpened, type ListenerOpened } from '../proxysocket/events.ts';
import { isSharedSockets } from '../proxysocket/core/shared-service-ports.ts';
import type { EndpointSpec, ListenerStatus } from '../proxysocket/spec.ts';
import type { LocalChange, LocalSink } from '../store/local-view.ts';
import { Backoff, DEFAULT_BACKOFF } from '../util/backoff.ts';
import { systemClock, type Clock, type Timer } from '../util/clock.ts';
import { isEqual } from '../util/compare.ts';
import { SerialQueue } from '../util/serial-queue.ts';
import { type Drain, type Drainable, Drains } from './drains.ts';
import { type Applied, EngineSync, type Step } from './engine-sync.ts';
import { proxierSynced, proxierSyncFailed, servicePortChanged } from './events.ts';
import { type HolderOf, Problems } from './problems.ts';
import { portalInput, type PortalPolicy, Wanted } from './wanted.ts';

/** Maximum number of times per sync that other ports are chosen for those held by other programs. */
const MAX_PORT_ROUNDS = 100;

/** Service ports whose states are read at once: they are large. */
const READ_AT_ONCE = 100;

type Policy = Partial<Omit<PortalPolicy, 'redirects'>>;

/** Default: clients are not held, and no pod networks are known. */
export interface ProxierOptions extends Policy {
  /** Carries the traffic. The caller closes it. */
  readonly engine: Engine;
  /** Redirects traffic to the engine. The caller closes it. */
  readonly portal: Portal;
  readonly clock?: Clock;
  /** Determines the advice. Default: this system. */
  readonly platform?: NodeJS.Platform;
  /** Describes the process that listens on a listener's address. Absent: messages do not name it. */
  readonly holderOf?: HolderOf;
  /** Whether only node ports are served, and no address of a service. Default: no. */
  readonly nodePortsOnly?: boolean;
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
  readonly #portal: Portal;
  readonly #engine: Engine;
  #policy: PortalPolicy;
  readonly #drains = new Drains();
  /** Service ports that may differ from what the portal or the engine has. */
  readonly #due = new Set<string>();
  /**
   * Service ports that were planned and not committed yet; undefined: none. Initially defined, since stale rules have to
   * be removed.
   */
  #uncommitted: Set<string> | undefined = new Set();
  /** Set while work is due that no source will repeat. */
  #retry: Timer | undefined;
  /** Set while listeners are open that are no longer wanted. */
  #late: Timer | undefined;
  /** Without jitter. */
  readonly #backoff = new Backoff(DEFAULT_BACKOFF, () => 0.5);
  readonly #engineSync: EngineSync;
  readonly #problems: Problems;
  readonly #queue = new SerialQueue();
  #closed = false;
  /** Rewrites the rules of service ports whose listeners opened late. */
  readonly #onOpened = ({ servicePort }: ListenerOpened): void => {
    const isShared = isSharedSockets(servicePort);
    const names = isShared ? [...this.#wanted.ports.keys()] : [servicePort];
    const late = names.filter((name) => this.#portal.isPartlyOpen(name));
    const wasDue = this.#uncommitted !== undefined;
    if (late.length === 0) return;
    this.#noteUncommitted(late);
    if (!wasDue) this.#catchUp();
  };

  constructor(options: ProxierOptions) {
    const { engine, portal, holds = false, podNetworks = [] } = options;
    const redirects = portal.redirects === true;
    this.#wanted = new Wanted(options.nodePortsOnly);
    this.#clock = options.clock ?? systemClock;
    this.#portal = portal;
    this.#policy = { redirects, holds, podNetworks };
    this.#engine = engine;
    this.#engineSync = new EngineSync({
      engine,
      clock: this.#clock,
      wanted: (name) => this.#applied(name),
      // If the portal does not redirect, clients reach the listeners directly.
      lingers: redirects,
    });
    this.#problems = new Problems({
      clock: this.#clock,
      platform: options.platform ?? process.platform,
      isOurs: (name) => this.#wanted.ports.has(name) || isSharedSockets(name),
      holderOf: options.holderOf,
    });
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
  setPolicy(change: Policy): Promise<void> {
    return this.#queue.run(async () => {
      const policy = { ...this.#policy, ...change };
      if (isEqual(policy, this.#policy)) return;
      this.#policy = policy;
      await this.#syncInBackground([...this.#wanted.ports.keys()]);
    });
  }

  get drains(): Omit<Drains, 'drain' | 'undrain' | 'restore'> {
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
    return this.#putDrains((ports) => this.#drains.drain(drain, ports));
  }

  /** Removes a drain; without one, all of them. Settles as `drain` does. */
  undrain(drain?: Drain): Promise<readonly string[]> {
    return this.#putDrains((ports) => this.#drains.undrain(drain, ports));
  }

  /** The state, for status pages. Endpoints are counted once per service port. */
  snapshot() {
    this.#problems.ofPortals(this.#portal.problems());
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
    this.#late?.cancel();
    this.#retry?.cancel();
    await this.#queue.idle();
    this.#problems.close();
  }

  /** Re-reads the services of a change set, and applies what is due. */
  async #sync(change?: LocalChange, isReported = true): Promise<void> {
    if (this.#closed) throw new KpngError('KPNG_SINK_FAILED', 'the proxier is closed');
    const begin = this.#clock.now();
    try {
      const steps = await this.#problems.holdBack(async () => {
        if (change !== undefined) this.#refresh(change);
        // The kernel's rejections are known only after the commit.
        return this.#putDue().finally(() => this.#problems.ofPortals(this.#portal.problems()));
      });
      if (isReported || steps.length > 0) this.#publish(steps, this.#clock.now() - begin);
    } catch (cause) {
      const message = `service ports could not be changed: ${messageOf(cause)}`;
      const error = new KpngError('KPNG_SINK_FAILED', message, { cause });
      proxierSyncFailed.publish({ durationMs: this.#clock.now() - begin, error });
      throw error;
    }
  }

  /** Portals do not see drains: the engine resets clients with that reason. */
  #putDrains(change: (ports: Drainable) => readonly string[]): Promise<readonly string[]> {
    return this.#queue.run(async () => {
      const before = this.#drains.list();
      const names = change(this.#wanted.ports);
      try {
        await this.#syncInBackground(names);
      } catch (error) {
        this.#drains.restore(before);
        throw error;
      }
      return names;
    });
  }

  /** Applies changes of service ports that no source repeats: if that fails, it is retried with back-off. */
  async #syncInBackground(names: readonly string[]): Promise<void> {
    for (const name of names) this.#due.add(name);
    try {
      // Nothing is written before the first state.
      if (names.length > 0) await this.#sync();
    } catch (error) {
      this.#catchUpLater();
      throw error;
    }
  }

  #catchUpLater(): void {
    if (this.#closed) return;
    this.#retry ??= this.#clock.setTimer(this.#backoff.next(), () => {
      this.#retry = undefined;
      this.#catchUp();
    });
  }

  /** `proxierSyncFailed` reports failures. */
  #catchUp(isReported = true): void {
    const sync = () => this.#sync(undefined, isReported);
    this.#queue.run(sync).catch(() => this.#catchUpLater());
  }

  /** Applies the desired state of the service ports that are due; they stay due if that fails. */
  async #putDue(): Promise<readonly Step[]> {
    const due = this.#due;
    const plan = this.#plan(due);
    if (plan !== undefined) {
      for (const name of plan.keys()) due.add(name);
      await this.#portal.prepare?.();
    }
    this.#engineSync.keepSurplus(due);
    const steps = await this.#engineSync.flush(due);
    if (plan !== undefined) await this.#moveTakenPorts();
    await this.#commit();
    this.#late?.cancel();
    const wait = this.#engineSync.closeLater();
    if (wait !== undefined) {
      this.#late = this.#clock.setTimer(wait, () => this.#catchUp(false));
    }
    this.#retry?.cancel();
    this.#retry = undefined;
    this.#backoff.reset();
    // Not earlier: until the engine had the batch, it could still retry listeners that are released.
    this.#problems.keepListeners(({ servicePort, protocol, listen }) => {
      if (!due.has(servicePort)) return true;
      const isSame = this.#wanted.ports.get(servicePort)?.spec.protocol === protocol;
      return isSame && listenerIndex(this.#portal.listen(servicePort))(listen) !== -1;
    });
    due.clear();
    return steps;
  }

  /** Plans the changes of these service ports; undefined if nothing differs and everything is committed. */
  #plan(names: Iterable<string>): PortalPlan | undefined {
    const set: ServicePortPortals[] = [];
    const remove: string[] = [];
    for (const name of names) {
      const port = this.#wanted.ports.get(name);
      const input = port && portalInput(port, this.#policy);
      if (isEqual(input, this.#portal.wanted(name))) continue;
      if (input === undefined) remove.push(name);
      else set.push(input);
    }
    if (set.length + remove.length === 0 && this.#uncommitted === undefined) return undefined;
    const plan = this.#portal.plan(set, remove);
    this.#noteUncommitted(plan.keys());
    return plan;
  }

  #noteUncommitted(names: Iterable<string>): void {
    this.#uncommitted ??= new Set();
    for (const name of names) this.#uncommitted.add(name);
  }

  /** Commits the plans with the ports that the engine has opened. If that fails, it stays due. */
  async #commit(): Promise<void> {
    const names = this.#uncommitted;
    if (names === undefined) return;
    this.#uncommitted = undefined;
    try {
      await this.#portal.commit(this.#listenersOf(names));
    } catch (error) {
      this.#noteUncommitted(names);
      throw error;
    }
  }

  /** Listeners of the service ports that the engine has. Read part by part, as there may be very many. */
  *#listenersOf(all: Iterable<string>): Generator<[string, readonly ListenerStatus[]]> {
    const names = [...all];
    for (let start = 0; start < names.length; start += READ_AT_ONCE) {
      const some = new Set(names.slice(start, start + READ_AT_ONCE));
      for (const { name, listeners } of this.#engine.snapshot(some)) yield [name, listeners];
    }
  }

  /** Chooses other proxy ports for those held by other programs, while there are any. */
  async #moveTakenPorts(): Promise<void> {
    if (!this.#portal.choosesPorts) return;
    for (let round = 0; round < MAX_PORT_ROUNDS; round += 1) {
      let isMoving = false;
      for (const [name, listeners] of this.#listenersOf(this.#uncommitted ?? [])) {
        for (const each of listeners) {
          if (each.state !== 'failed' || each.code !== 'KPNG_LISTEN_ADDRESS_IN_USE') continue;
          isMoving = this.#portal.portTaken(name, each.listen) || isMoving;
        }
      }
      if (!isMoving) return;
      const plan = this.#portal.plan([], []);
      this.#noteUncommitted(plan.keys());
      for (const name of plan.keys()) this.#due.add(name);
      await this.#engineSync.flush(plan.keys());
    }
  }

  /** With rules, clients use addresses on which the engine does not listen, so the engine is given them. */
  #applied(name: string): Applied | undefined {
    const port = this.#wanted.ports.get(name);
    if (port === undefined) return undefined;
    const { spec, portals } = port;
    const listen = this.#portal.listen(name);
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
    const isFollowed = servicePortChanged.hasSubscribers;
    for (const step of steps) {
      const { kind } = step;
      counts[kind] += 1;
      if (isFollowed && kind !== 'endpointsChanged') servicePortChanged.publish({ ...step, kind });
    }
    const { services, endpoints, ports } = this.#wanted;
    proxierSynced.publish({ durationMs, services, servicePorts: ports.size, endpoints, ...counts });
  }
}
