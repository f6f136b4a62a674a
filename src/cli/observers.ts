import type { Writable } from 'node:stream';
import type { Admin } from '../admin/start.ts';
import type { ProxySubject } from '../admin/subject.ts';
import { followEvents, Health } from '../observe/health.ts';
import { DATA_PATH_RULES } from '../observe/log-data-path.ts';
import { subscribeLog } from '../observe/log-rules.ts';
import { SINK_RULES } from '../observe/log-sinks.ts';
import { SOURCE_RULES } from '../observe/log-sources.ts';
import type { AdjustableLog } from '../observe/log.ts';
import type { Metrics } from '../observe/metrics.ts';
import { systemClock } from '../util/clock.ts';
import type { HttpServer } from '../util/http-server.ts';
import type { Activation } from '../util/activation.ts';
import { type LiveSettings, configz } from './live-settings.ts';
import type { BoundCommand } from './command.ts';
import { inheritServer } from './inherit-server.ts';
import type { HangUp, ProcessLike, StopReason } from './lifecycle.ts';
import type { FollowedFile } from './reload.ts';
import { programVersion } from './version.ts';

/** A parsed command line, ready to run. */
export interface RunOptions extends Pick<
  BoundCommand,
  'source' | 'sink' | 'globals' | 'given' | 'command' | 'settings'
> {
  readonly log: AdjustableLog;
  readonly process: ProcessLike;
  readonly stdout: Writable;
  readonly hangUp: HangUp;
  readonly config?: FollowedFile;
}

/** The options with those that can change, of `live`. */
export interface Live extends RunOptions {
  readonly live: LiveSettings;
  readonly activation: Activation;
  /** Stops gracefully, for a reason. Idempotent. */
  readonly stop: (reason: StopReason) => void;
}

/** The observers of a run, which end together. */
export interface Observers {
  readonly health: Health;
  readonly metrics: Metrics | undefined;
  readonly onProxy: (proxy: ProxySubject) => void;
  /** TCP ports of the servers for metrics, health and the status page. */
  ports(): readonly number[];
  /** Another process has taken over and serves the same addresses. Resolves when open requests have been answered. */
  leave(newProcess: number): Promise<void>;
  close(): Promise<void>;
}

/** Starts log lines, health and the servers. Metrics are loaded only if they can be scraped. */
export async function observe(options: Live): Promise<Observers> {
  const { source, sink, globals, given, log, live, stop, activation } = options;
  const health = new Health();
  const isDry = sink.options.dryRun === true;
  // A dry run logs no changes.
  const rules = isDry ? SOURCE_RULES : [...SOURCE_RULES, ...SINK_RULES, ...DATA_PATH_RULES];
  const ends = [subscribeLog(log, rules), followEvents(health)];
  const isWanted = (flag: string): boolean =>
    !isDry && (sink.servesByDefault === true || given.has(flag));
  const version = programVersion();
  const metricsAddress = isWanted('metrics-bind-address') ? globals.metricsBindAddress : undefined;
  const healthAddress = isWanted('healthz-bind-address') ? globals.healthzBindAddress : undefined;
  let metrics: Metrics | undefined;
  if (metricsAddress !== undefined) {
    const { createMetrics } = await import('../observe/metrics.ts');
    metrics = createMetrics({
      version,
      perEndpoint: globals.metricsPerEndpoint,
      exemplars: globals.metricsExemplars,
      verdict: () => health.read(),
    });
    ends.push(() => metrics?.close());
  }
  let servers: HttpServer | undefined;
  if (metricsAddress !== undefined || healthAddress !== undefined) {
    const { observeServers } = await import('./observe-servers.ts');
    servers = await observeServers(
      {
        metricsAddress,
        healthAddress,
        health,
        metrics,
        configz: () => configz(live, log.verbosity),
        log,
        clock: systemClock,
        inherit: inheritServer,
        activation,
      },
      globals,
      ends,
    );
  }
  let proxy: ProxySubject | undefined;
  const socketPath = isWanted('admin-socket') ? globals.adminSocket : '';
  const pageAddress = isWanted('status-bind-address') ? globals.statusBindAddress : undefined;
  let admin: Admin | undefined;
  if (socketPath !== '' || pageAddress !== undefined) {
    const { startAdmin } = await import('../admin/start.ts');
    admin = await startAdmin({
      socketPath,
      pageAddress,
      subject: {
        version,
        command: `${source.word} ${sink.word}`,
        nodeName: sink.scope === 'local' ? sink.options.nodeName : undefined,
        health,
        log,
        clock: systemClock,
        drainDelayMs: () => globals.drainDelay,
        proxy: () => proxy,
        stop: () => stop({ logFields: { by: 'the admin socket' } }),
      },
      inherit: inheritServer,
      activation,
    });
  }
  let left: Promise<void> | undefined;
  return {
    health,
    metrics,
    onProxy: (started) => (proxy = started),
    ports: () => [...(servers?.ports ?? []), ...(admin?.ports ?? [])],
    leave(newProcess) {
      // The admin API marks this process as replaced, and a probe that it still has to answer would fail.
      left ??= Promise.resolve(servers?.leave()).then(() => admin?.leave(newProcess));
      return left;
    },
    async close() {
      // Closing at once would reset clients that connected before the new process served.
      await left;
      await Promise.all([servers?.close(), admin?.close()]);
      for (const end of ends) end();
    },
  };
}
