import { sourceConnected, sourceDisconnected } from '../store/events.ts';
import type { GlobalSource, GlobalStore } from '../store/global-store.ts';
import { Backoff, type BackoffPolicy, DEFAULT_BACKOFF } from '../util/backoff.ts';
import { type Clock, MAX_TIMER_MS, pause } from '../util/clock.ts';
import { openKubeApi } from './api.ts';
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
import { Outage, reflect, type Reflection } from './reflector.ts';
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
 * Services, EndpointSlices and Nodes of a Kubernetes API, kept in a global state. Reads the configuration; throws
 * KPNG_KUBECONFIG or KPNG_USAGE if it is invalid.
 *
 * The state stays while the server is unreachable or refuses. Each resource is complete before the state is synced;
 * if the server forbids reading nodes, the state is complete without them, as they only matter for zones.
 */
export async function openKubeSource({
  config,
  selection,
  nodeName = '',
  onPodNetworks,
  userAgent,
  backoff = DEFAULT_BACKOFF,
  limits = DEFAULT_KUBE_LIMITS,
  clock,
  random = Math.random,
}: KubeSourceOptions): Promise<GlobalSource> {
  const selector = serviceSelector(selection.proxyName);
  const api = await openKubeApi({ ...config, limits, clock, userAgent });

  let reportedUser: string | undefined;
  const reportUser = ({ user, by }: Identity): void => {
    if (reportedUser === user) return;
    reportedUser = user;
    const { origin, context, proxy: given } = api.config;
    const proxy = given === undefined ? undefined : (URL.parse(given)?.host ?? given);
    kubeStarted.publish({ server: api.server, origin, context, user, by, proxy, selector });
  };

  const watching = new Set<ResourceName>();
  let isConnected = false;
  const report = (resource: ResourceName, error?: KubeFailure, retryInMs = 0): void => {
    if (error === undefined) {
      watching.add(resource);
      if (isConnected || watching.size < 3) return;
      isConnected = true;
      sourceConnected.publish({ source: api.sourceName });
      return;
    }
    watching.delete(resource);
    if (error.isRoutine) return;
    isConnected = false;
    sourceDisconnected.publish({ source: api.sourceName, error, retryInMs });
  };

  let known: OwnNode = { ineligible: undefined, podNetworks: [] };
  const nodeChanged = (now: OwnNode | undefined): void => {
    // A missing node keeps its state, as in kube-proxy.
    if (now === undefined) return;
    const before = known;
    known = now;
    const { ineligible, podNetworks } = now;
    if (ineligible !== before.ineligible) kubeNode.publish({ node: nodeName, ineligible });
    if (podNetworks.join() !== before.podNetworks.join()) onPodNetworks?.(podNetworks);
  };

  let reportedOrphans = 0;
  let checksOrphans = false;
  const checkOrphans = async (store: GlobalStore, signal: AbortSignal): Promise<void> => {
    if (checksOrphans || !kubeOrphans.hasSubscribers) return;
    checksOrphans = true;
    await pause(ORPHANS_SETTLE_MS, api.clock, signal);
    checksOrphans = false;
    const summary = orphansIn(store);
    if (summary.count !== reportedOrphans) kubeOrphans.publish(summary);
    reportedOrphans = summary.count;
  };

  return {
    get name() {
      return api.sourceName;
    },
    /** Keeps the state up to date until the signal aborts, and the process alive. Runs once. */
    async feed(store, signal) {
      const maxMs = Math.max(limits.maxOutageWaitMs, backoff.initialMs);
      const outage = new Outage(api.clock, new Backoff({ ...backoff, maxMs }, random), signal);
      api.onAnswer = (identity) => {
        outage.answered();
        reportUser(identity);
      };
      const start = <T>(options: Pick<Reflection<T>, 'resource' | 'apply' | 'report'>) =>
        reflect({ api, outage, backoff, random, ...options }, signal);
      const follow = <T>(resource: Feed<T>): Promise<void> =>
        start({
          resource,
          apply: (changes, complete) => {
            const changed = store.update((transaction) => {
              for (const [key, value] of changes) resource.change(transaction, key, value);
              if (complete) transaction.setComplete(resource.set);
            });
            if (changed && store.synced) void checkOrphans(store, signal);
          },
          report: (failure, retryInMs) => {
            report(resource.name, failure, retryInMs);
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
            start({
              resource: ownNode(nodeName),
              apply: (changes) => nodeChanged(changes.get(nodeName)),
            }),
        ]);
      } finally {
        clearInterval(alive);
        api.close();
      }
    },
  };
}
