import { sourceConnected, sourceDisconnected } from '../store/events.ts';
import type { GlobalSource, GlobalStore } from '../store/global-store.ts';
import { type BackoffPolicy, DEFAULT_BACKOFF } from '../util/backoff.ts';
import { type Clock, MAX_TIMER_MS, pause } from '../util/clock.ts';
import { KubeApi } from './api.ts';
import type { ConfigOptions } from './config.ts';
import { kubeNode, kubeOrphans, kubeStarted } from './events.ts';
import type { KubeFailure } from './failure.ts';
import { DEFAULT_KUBE_LIMITS, type KubeLimits } from './limits.ts';
import {
  type Feed,
  nodeFeed,
  orphansIn,
  type OwnNode,
  ownNode,
  serviceFeed,
  sliceFeed,
} from './map.ts';
import { Outage, Reflector, type ReflectorOptions } from './reflector.ts';
import type { Identity } from './refusal.ts';
import { type ResourceName, type Selection, serviceSelector } from './resource.ts';

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
  readonly #api: KubeApi;
  readonly #watching = new Set<ResourceName>();
  #isConnected = false;
  #ownNode: OwnNode = { ineligible: undefined, podNetworks: [] };
  #reportedUser: string | undefined;
  #reportedOrphans = 0;
  #checksOrphans = false;

  private constructor(options: KubeSourceOptions, api: KubeApi) {
    this.#options = options;
    this.#api = api;
  }

  /** Reads the configuration; throws KPNG_KUBECONFIG or KPNG_USAGE if it is invalid. */
  static async open(options: KubeSourceOptions): Promise<KubeSource> {
    serviceSelector(options.selection.proxyName);
    const { config, limits = DEFAULT_KUBE_LIMITS, clock, userAgent } = options;
    const api = await KubeApi.open({ ...config, limits, clock, userAgent });
    return new KubeSource(options, api);
  }

  /** The source name in its events. */
  get name(): string {
    return this.#api.sourceName;
  }

  /** Keeps the state up to date until the signal aborts, and the process alive. Runs once. */
  async feed(store: GlobalStore, signal: AbortSignal): Promise<void> {
    const { backoff = DEFAULT_BACKOFF, random = Math.random } = this.#options;
    const { selection, nodeName = '' } = this.#options;
    const api = this.#api;
    const maxMs = Math.max(api.limits.maxOutageWaitMs, backoff.initialMs);
    const outage = new Outage(api.clock, { ...backoff, maxMs }, random);
    api.onAnswer = (identity) => {
      outage.answered();
      this.#reportStarted(identity);
    };
    const reflect = <T>(options: Pick<ReflectorOptions<T>, 'resource' | 'apply' | 'report'>) =>
      new Reflector({ api, outage, backoff, random, ...options }).run(signal);
    const follow = <T>(resource: Feed<T>): Promise<void> =>
      reflect({
        resource,
        apply: (changes, complete) => {
          const changed = store.update((transaction) => {
            for (const [key, value] of changes) resource.change(transaction, key, value);
            if (complete) transaction.setComplete(resource.set);
          });
          if (changed && store.synced) this.#checkOrphans(store, signal);
        },
        report: (failure, retryInMs = 0) => {
          this.#report(resource.name, failure, retryInMs);
          if (resource.name !== 'nodes' || failure?.kind !== 'forbidden') return;
          store.update((transaction) => transaction.setComplete('nodes'));
        },
      });
    const alive = setInterval(() => {}, MAX_TIMER_MS);
    try {
      await Promise.all([
        follow(serviceFeed(selection)),
        follow(sliceFeed()),
        follow(nodeFeed(selection)),
        // The own node is not part of the state, and losing it is not losing the source.
        nodeName !== '' &&
          reflect({
            resource: ownNode(nodeName),
            apply: (changes) => this.#nodeChanged(nodeName, changes.get(nodeName)),
          }),
      ]);
    } finally {
      clearInterval(alive);
      api.close();
    }
  }

  #nodeChanged(node: string, now: OwnNode | undefined): void {
    // A missing node keeps its state, as in kube-proxy.
    if (now === undefined) return;
    const before = this.#ownNode;
    this.#ownNode = now;
    const { ineligible, podNetworks } = now;
    if (ineligible !== before.ineligible) kubeNode.publish({ node, ineligible });
    if (podNetworks.join() !== before.podNetworks.join())
      this.#options.onPodNetworks?.(podNetworks);
  }

  #reportStarted({ user, by }: Identity): void {
    if (this.#reportedUser === user) return;
    this.#reportedUser = user;
    const { origin, context, proxy } = this.#api.config;
    kubeStarted.publish({
      server: this.#api.server,
      origin,
      context,
      user,
      by,
      proxy: proxy === undefined ? undefined : (URL.parse(proxy)?.host ?? proxy),
      selector: serviceSelector(this.#options.selection.proxyName),
    });
  }

  #report(resource: ResourceName, error: KubeFailure | undefined, retryInMs: number): void {
    if (error === undefined) {
      this.#watching.add(resource);
      if (this.#isConnected || this.#watching.size < 3) return;
      this.#isConnected = true;
      sourceConnected.publish({ source: this.name });
      return;
    }
    this.#watching.delete(resource);
    if (error.isRoutine) return;
    this.#isConnected = false;
    sourceDisconnected.publish({ source: this.name, error, retryInMs });
  }

  #checkOrphans(store: GlobalStore, signal: AbortSignal): void {
    if (this.#checksOrphans || !kubeOrphans.hasSubscribers) return;
    this.#checksOrphans = true;
    void pause(ORPHANS_SETTLE_MS, this.#api.clock, signal).then(() => {
      this.#checksOrphans = false;
      const summary = orphansIn(store);
      if (summary.count !== this.#reportedOrphans) kubeOrphans.publish(summary);
      this.#reportedOrphans = summary.count;
    });
  }
}
