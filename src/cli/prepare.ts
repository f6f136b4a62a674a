import type { ProxySubject } from '../admin/subject.ts';
import { loadHasher } from '../api/hash.ts';
import { KpngError } from '../errors.ts';
import type { Health } from '../observe/health.ts';
import { summaryReader } from '../observe/service-summary.ts';
import { systemClock } from '../util/clock.ts';
import type { Log } from '../observe/log.ts';
import { sourceSynced } from '../store/events.ts';
import { GlobalStore, type GlobalSource } from '../store/global-store.ts';
import { feedLocalSink } from '../store/local-feed.ts';
import type { LocalSink, LocalChange } from '../store/local-view.ts';
import type { RunContext, Running, RunningSink } from './command.ts';
import { unknownNode } from './flags/backend.ts';
import { backoffFrom } from './flags/global.ts';
import type { Live, Observers } from './observers.ts';

/** A running sink. `work` feeds it from its source until the signal aborts. */
interface Prepared {
  readonly running: Running;
  readonly work: (signal: AbortSignal) => Promise<void>;
}

export async function prepare(options: Live, observers: Observers): Promise<Prepared> {
  const { source, sink, globals, log } = options;
  const context: RunContext = { ...options, otherPorts: () => observers.ports() };
  if (sink.scope === 'local') {
    const running = await sink.start(context);
    if (running.proxy !== undefined) observeProxy(running.proxy, observers);
    const target = watched(running, observers, log);
    const setPodNetworks = running.setPodNetworks?.bind(running);
    const { nodeName } = sink.options;
    const from = { ...context, nodeName, setPodNetworks };
    return {
      running,
      async work(signal) {
        if (source.scope === 'local') return (await source.start(from)).run(target, signal);
        const fed = {
          nodeName,
          clusterScope: setPodNetworks !== undefined,
          delivery: { backoff: backoffFrom(globals) },
          hasher: await loadHasher(),
          source: checkingNode(await source.start(from), nodeName, log),
        };
        return feedLocalSink(fed, target, signal);
      },
    };
  }
  if (source.scope === 'local') throw new Error(`${source.word} cannot feed ${sink.word}`);
  const store = new GlobalStore({ hasher: await loadHasher() });
  const running = await sink.start(context, store);
  return {
    running,
    async work(signal) {
      const from = await source.start(context);
      const end = followStore(store, from.name, observers.health, log);
      try {
        await from.feed(store, signal);
      } finally {
        end();
      }
    },
  };
}

/**
 * The source, with a warning when its state has nodes but not this one: then no endpoint is local. One warning each time
 * that it goes missing.
 */
function checkingNode(source: GlobalSource, node: string, log: Log): GlobalSource {
  return {
    name: source.name,
    async feed(store, signal) {
      let isMissing = false;
      const end = store.onChange(() => {
        const wasMissing = isMissing;
        isMissing =
          store.synced &&
          store.nodes.get(node) === undefined &&
          store.nodes.cells().some(({ value }) => value !== undefined);
        if (wasMissing || !isMissing) return;
        const names = store.nodes.cells().flatMap(({ key, value }) => (value ? [key] : []));
        const err = unknownNode(node, names, source.name);
        log.warn('Unknown node: no endpoint counts as local; set --node-name', { err });
      });
      await source.feed(store, signal).finally(end);
    },
  };
}

function observeProxy(proxy: ProxySubject, { health, metrics, onProxy }: Observers): void {
  onProxy(proxy);
  const { engine, portal, limits } = proxy;
  const problems = () => proxy.problems();
  metrics?.observe({
    get engine() {
      return engine.kind;
    },
    portal,
    limits,
    snapshot: (names) => engine.snapshot(names),
    names: () => engine.names(),
    inspect: (query) => engine.inspect(query),
    problems,
  });
  health.readFrom({ problems, services: summaryReader(proxy, systemClock) });
}

/** Reports applied change sets to health, and the first one to the log. */
function watched(running: RunningSink, { health, metrics }: Observers, log: Log): LocalSink {
  const countPolicies = localPolicyCounter();
  return {
    async sync(change) {
      health.syncStarted();
      try {
        await running.sink.sync(change);
      } catch (error) {
        health.syncFailed(error instanceof KpngError ? error.code : 'KPNG_SINK_FAILED');
        throw error;
      }
      for (const [policy, count] of Object.entries(countPolicies(change))) {
        const name = 'kubeproxy_sync_proxy_rules_no_local_endpoints_total';
        metrics?.record(name, count, { traffic_policy: policy });
      }
      if (health.facts.firstSyncAt === undefined) {
        log.info('The first complete state is in place', { services: change.view.size });
      }
      health.synced();
      await running.inPlace?.();
    },
  };
}

/**
 * Reports to health, and once to the log, that a store has the state of the cluster and serves it. `source`: the name of what
 * feeds it. Returns a function that ends this.
 */
function followStore(store: GlobalStore, source: string, health: Health, log: Log): () => void {
  let known = store.pin(() => known.release());
  const end = store.onChange(() => {
    if (!store.synced) return;
    if (sourceSynced.hasSubscribers) {
      const changed = [...store.services.changedSince(known.revision)].length;
      sourceSynced.publish({ source, services: store.serviceCount, changed });
    }
    known.release();
    known = store.pin(() => known.release());
    if (health.facts.firstSyncAt === undefined) {
      log.info('The first complete state is in place', { services: store.serviceCount });
    }
    health.synced();
  });
  return () => {
    end();
    known.release();
  };
}

/**
 * Returns a function to call with each change set. It counts the services without an endpoint that their internal or
 * external traffic policy allows on this node. Unchanged services cost nothing.
 */
export function localPolicyCounter() {
  const lacking = { internal: new Set<string>(), external: new Set<string>() };
  return ({ view, changed }: LocalChange) => {
    for (const key of changed) {
      const entry = view.get(key);
      for (const scope of ['internal', 'external'] as const) {
        // An endpoint without scopes may be used for all traffic.
        const lacks =
          entry?.service[`${scope}TrafficToLocal`] === true &&
          ![...entry.endpoints.values()].some(({ scopes }) => scopes?.[scope] ?? true);
        if (lacks) lacking[scope].add(key);
        else lacking[scope].delete(key);
      }
    }
    return { internal: lacking.internal.size, external: lacking.external.size };
  };
}
