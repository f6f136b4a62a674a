import { sourceConnected, sourceDisconnected } from '../store/events.ts';
import type { GlobalSource, GlobalStore } from '../store/global-store.ts';
import { type BackoffPolicy, DEFAULT_BACKOFF } from '../util/backoff.ts';
import { type Clock, MAX_TIMER_MS, pause } from '../util/clock.ts';
import { type Access, ApiAccess } from './access.ts';
import { KubeApi } from './api.ts';
import type { ConfigOptions } from './config.ts';
import { kubeNode, kubeOrphans, kubeStarted } from './events.ts';
import type { KubeFailure } from './failure.ts';
import { type Feed, nodeFeed, orphansIn, serviceFeed, sliceFeed } from './feeds.ts';
import { DEFAULT_KUBE_LIMITS, type KubeLimits } from './limits.ts';
import { type OwnNode, ownNode } from './map.ts';
import { Outage } from './outage.ts';
import { Reflector, type ReflectorTarget } from './reflector.ts';
import { type Resource, type ResourceName, type Selection, serviceSelector } from './resource.ts';

export interface KubeSourceOptions {
  readonly config: ConfigOptions;
  readonly selection: Selection;
  /** The node that this runs on, whose eligibility is reported. Empty or absent: it is not watched. */
  readonly nodeName?: string | undefined;
  /** Gets the networks (CIDR) of the pods of that node whenever they change. */
  readonly onPodNetworks?: ((networks: readonly string[]) => void) | undefined;
  /** User agent of the requests. */
  readonly userAgent: string;
  /** Delays after failures. Default: 1 s growing to 30 s. */
  readonly backoff?: BackoffPolicy | undefined;
  readonly limits?: KubeLimits | undefined;
  readonly clock?: Clock | undefined;
  readonly random?: (() => number) | undefined;
}

/** The status of the connection to the API server. */
export interface KubeSnapshot {
  /** The source name in its events. */
  readonly source: string;
  /** The failure of each resource that is not being watched. */
  readonly failures: ReadonlyMap<ResourceName, KubeFailure>;
  /** Resources that are being watched. */
  readonly watching: readonly ResourceName[];
}

/** Slices usually come and go with their services; only those that stay without one are reported. Milliseconds. */
const ORPHANS_SETTLE_MS = 10_000;

/**
 * Services, EndpointSlices and Nodes of a Kubernetes API, kept in a global state.
 *
 * The state stays while the server is unreachable or refuses. Each resource is complete before the state is synced;
 * if the server forbids reading nodes, the state is complete without them, as they only matter for zones.
 */
export class KubeSource implements GlobalSource {
  readonly #options: KubeSourceOptions;
  readonly #access: ApiAccess;
  readonly #random: () => number;
  readonly #failures = new Map<ResourceName, KubeFailure>();
  readonly #watching = new Set<ResourceName>();
  #state: 'new' | 'connected' | 'lost' = 'new';
  #reportedUser: string | undefined;
  #reportedOrphans = 0;
  #checksOrphans = false;

  private constructor(options: KubeSourceOptions, access: ApiAccess) {
    this.#options = options;
    this.#access = access;
    this.#random = options.random ?? Math.random;
  }

  /** Reads the configuration; throws KPNG_KUBECONFIG or KPNG_USAGE if it is invalid. */
  static async open(options: KubeSourceOptions): Promise<KubeSource> {
    serviceSelector(options.selection.proxyName);
    const { config, limits = DEFAULT_KUBE_LIMITS, clock } = options;
    return new KubeSource(options, await ApiAccess.open({ ...config, limits, clock }));
  }

  /** The source name in its events. */
  get name(): string {
    return this.#access.sourceName;
  }

  snapshot(): KubeSnapshot {
    return { source: this.name, failures: this.#failures, watching: [...this.#watching] };
  }

  /** Keeps the state up to date until the signal aborts, and the process alive. Runs once. */
  async feed(store: GlobalStore, signal: AbortSignal): Promise<void> {
    const { backoff = DEFAULT_BACKOFF, selection, userAgent, nodeName = '' } = this.#options;
    const { limits, clock } = this.#access;
    const maxMs = Math.max(limits.maxOutageWaitMs, backoff.initialMs);
    const outage = new Outage(clock, { ...backoff, maxMs }, this.#random);
    const api = new KubeApi(this.#access, userAgent, (access) => {
      outage.answered();
      this.#reportStarted(access);
    });
    const follow = <T>(feed: Feed<T>): Promise<void> =>
      reflect(feed, this.#target(feed, store, signal));
    const reflect = <T>(resource: Resource<T>, target: ReflectorTarget<T>): Promise<void> =>
      new Reflector({ resource, api, target, outage, backoff, random: this.#random }).run(signal);
    const alive = setInterval(() => {}, MAX_TIMER_MS);
    try {
      await Promise.all([
        follow(serviceFeed(selection)),
        follow(sliceFeed()),
        follow(nodeFeed(selection)),
        ...(nodeName === '' ? [] : [reflect(ownNode(nodeName), this.#nodeTarget(nodeName))]),
      ]);
    } finally {
      clearInterval(alive);
      this.#watching.clear();
      this.#access.close();
    }
  }

  #target<T>(feed: Feed<T>, store: GlobalStore, signal: AbortSignal): ReflectorTarget<T> {
    const resource = feed.name;
    return {
      apply: (changes, complete) => {
        const changed = store.update((transaction) => {
          for (const [key, value] of changes) feed.change(transaction, key, value);
          if (complete) transaction.setComplete(feed.set);
        });
        if (changed && store.synced) this.#checkOrphans(store, signal);
      },
      watching: () => this.#opened(resource),
      failed: (failure, retryInMs) => {
        this.#failed(resource, failure, retryInMs);
        if (resource === 'nodes' && failure.kind === 'forbidden') {
          store.update((transaction) => transaction.setComplete('nodes'));
        }
      },
    };
  }

  /** The own node is not part of the state, and losing it is not losing the source. */
  #nodeTarget(node: string): ReflectorTarget<OwnNode> {
    let reported: OwnNode = { ineligible: undefined, podNetworks: [] };
    return {
      apply: (changes) => {
        const now = changes.get(node);
        // A missing node keeps its state, as in kube-proxy.
        if (now === undefined) return;
        const before = reported;
        reported = now;
        const { ineligible, podNetworks } = now;
        if (ineligible !== before.ineligible) kubeNode.publish({ node, ineligible });
        if (podNetworks.join() === before.podNetworks.join()) return;
        this.#options.onPodNetworks?.(podNetworks);
      },
    };
  }

  #reportStarted({ identity }: Access): void {
    if (this.#reportedUser === identity.user) return;
    this.#reportedUser = identity.user;
    const { origin, context, proxy } = this.#access.config;
    kubeStarted.publish({
      server: this.#access.server,
      origin,
      context,
      user: identity.user,
      by: identity.by,
      proxy: proxy === undefined ? undefined : (URL.parse(proxy)?.host ?? proxy),
      selector: serviceSelector(this.#options.selection.proxyName),
    });
  }

  #opened(resource: ResourceName): void {
    this.#failures.delete(resource);
    this.#watching.add(resource);
    if (this.#state === 'connected' || this.#watching.size < 3) return;
    this.#state = 'connected';
    sourceConnected.publish({ source: this.name });
  }

  #failed(resource: ResourceName, error: KubeFailure, retryInMs: number): void {
    this.#failures.set(resource, error);
    this.#watching.delete(resource);
    if (error.isRoutine) return;
    this.#state = 'lost';
    sourceDisconnected.publish({ source: this.name, error, retryInMs });
  }

  #checkOrphans(store: GlobalStore, signal: AbortSignal): void {
    if (this.#checksOrphans || !kubeOrphans.hasSubscribers) return;
    this.#checksOrphans = true;
    void pause(ORPHANS_SETTLE_MS, this.#access.clock, signal).then(() =>
      this.#reportOrphans(store),
    );
  }

  #reportOrphans(store: GlobalStore): void {
    this.#checksOrphans = false;
    const summary = orphansIn(store);
    if (summary.count === this.#reportedOrphans) return;
    this.#reportedOrphans = summary.count;
    kubeOrphans.publish(summary);
  }
}
