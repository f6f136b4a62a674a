import { once } from 'node:events';
import type { ProxySubject } from '../admin/subject.ts';
import { loadHasher } from '../api/hash.ts';
import { KpngError } from '../errors.ts';
import type { Log } from '../observe/log.ts';
import { sourceSynced } from '../store/events.ts';
import { GlobalStore, type GlobalSource } from '../store/global-store.ts';
import { feedLocalSink } from '../store/local-feed.ts';
import type { LocalChange, LocalSink } from '../store/local-view.ts';
import { Activation } from '../util/activation.ts';
import { systemClock } from '../util/clock.ts';
import { formatDuration } from '../util/duration.ts';
import { exitCodeOf, type RunContext, type Running, type RunningSink } from './command.ts';
import { unknownNode } from './flags/backend.ts';
import { backoffFrom } from './flags/global.ts';
import { drain, remainingOf, setOomScore, watchProcess } from './lifecycle.ts';
import type { Live, RunOptions, StopReason } from './lifecycle.ts';
import { followConfig } from './live-settings.ts';
import { observe, type Observers } from './observers.ts';
import { collectAfterFirst, keepHeapSmall, optimizeLate } from './small-heap.ts';
import { programVersion } from './version.ts';

/** Runs a source into a sink until a signal, and returns the exit code: 0, 1 or 2. */
export async function run(given: RunOptions): Promise<number> {
  keepHeapSmall();
  const { log, source, sink, process, hangUp } = given;
  const { dryRun = false, handoverSocket = '' } = sink.options;
  const activation = handoverSocket === '' || dryRun ? Activation.immediate() : new Activation();
  const asked = Promise.withResolvers<StopReason>();
  const stop = asked.resolve;
  const options: Live = { ...given, globals: { ...given.globals }, stop, activation };
  let observers: Observers | undefined;
  let config: ReturnType<typeof followConfig> | undefined;
  const reload = given.config && (() => config?.again());
  const endWatch = watchProcess(process, log, hangUp, stop, reload);
  // Clock timers do not keep the process alive; this does while a source waits.
  const alive = setInterval(() => {}, 2 ** 31 - 1);
  try {
    observers = await observe(options);
    const { health } = observers;
    void asked.promise.then(({ logFields }) => {
      log.info('Stopping', logFields);
      health.change({ stopping: true });
    });
    log.info('Starting', {
      version: programVersion(),
      source: source.word,
      sink: sink.word,
      node: sink.options.nodeName,
    });
    await setOomScore(options.globals.oomScoreAdj, log);
    const { running, work } = await prepare(options, observers);
    optimizeLate();
    config =
      given.config &&
      followConfig(given.config, options, (change) => {
        const changed = running.setLimits?.(change);
        changed?.catch((error: unknown) => log.error('Limits not changed', { err: error }));
      });
    return await carry(running, work, options, observers, asked.promise);
  } catch (error) {
    const hasStarted = observers?.health.facts.firstSyncAt !== undefined;
    log.error(hasStarted ? 'Failed; exiting' : 'Startup failed', { err: error });
    return exitCodeOf(error);
  } finally {
    clearInterval(alive);
    config?.close();
    await observers?.close();
    endWatch();
  }
}

/** Feeds a sink until it ends, or until a stop is asked for; then drains it. Returns the exit code. */
async function carry(
  running: Running,
  work: (signal: AbortSignal) => Promise<void>,
  { log, globals }: Live,
  observers: Observers,
  asked: Promise<StopReason>,
): Promise<number> {
  const { proxy } = running;
  const end = new AbortController();
  const ended = once(end.signal, 'abort');
  const endNow = (): void => end.abort();
  void running.ended?.then((newProcess) => {
    if (typeof newProcess === 'number') void observers.leave(newProcess);
    endNow();
  });
  let withinMs = Infinity;
  void asked.then((reason) => {
    ({ withinMs = Infinity } = reason);
    const serves = proxy !== undefined && observers.health.facts.firstSyncAt !== undefined;
    const delayMs = serves && withinMs === Infinity ? globals.drainDelay : 0;
    if (delayMs === 0) return endNow();
    const drainDelay = formatDuration(delayMs);
    log.info('Serving new connections for the drain delay', { drainDelay });
    systemClock.setTimer(delayMs, endNow);
  });
  try {
    const fed = work(end.signal);
    await Promise.race([fed, ended]);
    // A stuck sink, such as one whose output is not read, must not keep the program alive.
    const closed = fed.then(() => running.close?.());
    const remaining = proxy && (() => remainingOf(proxy.engine.snapshot()));
    await drain(closed, Math.min(globals.drainTimeout, withinMs), remaining, log);
  } finally {
    await running.destroy?.();
  }
  const code = (await running.afterwards?.(asked)) ?? 0;
  log.info('Stopped');
  return code;
}

/** Starts the sink. `work` starts the source, which feeds the sink until the signal aborts. */
async function prepare(options: Live, observers: Observers) {
  const { source, sink, globals, log } = options;
  const { nodeName = '' } = sink.options;
  const context: RunContext = { ...options, nodeName };
  if (sink.scope === 'local') {
    const running = await sink.start(context);
    if (running.proxy !== undefined) observers.onProxy(running.proxy);
    const target = watched(running, observers, log);
    const setPodNetworks = running.setPodNetworks?.bind(running);
    const from = { ...context, setPodNetworks };
    const work = async (signal: AbortSignal) => {
      if (source.scope === 'local') return (await source.start(from)).run(target, signal);
      const fed = {
        nodeName,
        clusterScope: setPodNetworks !== undefined,
        delivery: { backoff: backoffFrom(globals) },
        hasher: await loadHasher(),
        source: checkingNode(nodeName, await source.start(from), log),
      };
      return feedLocalSink(fed, target, signal);
    };
    return { running, work };
  }
  if (source.scope === 'local') throw new Error(`${source.word} cannot feed ${sink.word}`);
  const store = new GlobalStore({ hasher: await loadHasher() });
  const work = async (signal: AbortSignal) => {
    const started = await source.start(context);
    store.onChange(storeReport(store, started.name, observers, log));
    return started.feed(store, signal);
  };
  return { running: await sink.start({ ...context, store }), work };
}

/**
 * The source. Warns when its state has nodes but not this one: then no endpoint is local. One warning each time that it
 * goes missing.
 */
function checkingNode(node: string, source: GlobalSource, log: Log): GlobalSource {
  return {
    name: source.name,
    feed(store, signal) {
      const { nodes } = store;
      let isMissing = false;
      store.onChange(() => {
        const wasMissing = isMissing;
        isMissing = store.synced && nodes.get(node) === undefined && nodes.current.size > 0;
        if (wasMissing || !isMissing) return;
        const err = unknownNode(node, [...nodes.current.keys()].sort(), source.name);
        log.warn('Unknown node: no endpoint counts as local; set --node-name', { err });
      });
      return source.feed(store, signal);
    },
  };
}

/** Reports applied change sets to health, and the first one to the log. */
function watched(running: RunningSink, observers: Observers, log: Log): LocalSink {
  const { health, metrics } = observers;
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
      applied(change.view.size, observers, log, running.proxy);
      await running.inPlace?.();
    },
  };
}

function applied(services: number, { health }: Observers, log: Log, proxy?: ProxySubject): void {
  if (health.facts.firstSyncAt === undefined) {
    log.info('The first complete state is in place', { services });
    collectAfterFirst(proxy?.engine);
  }
  health.synced();
}

/** Reports to health, and once to the log, that a store has the state of the cluster and serves it. `source`: its name. */
function storeReport(store: GlobalStore, source: string, observers: Observers, log: Log) {
  let known = store.pin();
  return (): void => {
    if (!store.synced) return;
    const changed = store.services.changedSince(known.revision).size;
    sourceSynced.publish({ source, services: store.serviceCount, changed });
    known.release();
    known = store.pin();
    applied(store.serviceCount, observers, log);
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
        lacking[scope].delete(key);
        if (entry?.service[`${scope}TrafficToLocal`] !== true) continue;
        // An endpoint without scopes may be used for all traffic.
        const endpoints = [...entry.endpoints.values()];
        if (!endpoints.some(({ scopes }) => scopes?.[scope] ?? true)) lacking[scope].add(key);
      }
    }
    return { internal: lacking.internal.size, external: lacking.external.size };
  };
}
