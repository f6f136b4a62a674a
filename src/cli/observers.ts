import type { Writable } from 'node:stream';
import type { Admin } from '../admin/start.ts';
import type { ProxySubject } from '../admin/subject.ts';
import { followEvents, Health } from '../observe/health.ts';
import type { TlsServers } from '../observe/access.ts';
import { DATA_PATH_RULES } from '../observe/log-data-path.ts';
import { subscribeLog } from '../observe/log-rules.ts';
import { SINK_RULES } from '../observe/log-sinks.ts';
import { SOURCE_RULES } from '../observe/log-sources.ts';
import type { AdjustableLog } from '../observe/log.ts';
import type { Metrics } from '../observe/metrics.ts';
import type { ServersOptions } from '../observe/servers.ts';
import { takeInherited } from '../proxysocket/core/inherited.ts';
import { systemClock } from '../util/clock.ts';
import type { HostPort } from '../util/host-port.ts';
import type { HttpServer } from '../util/http-server.ts';
import type { Activation } from '../util/activation.ts';
import { configz, type FollowedFile, type LiveSettings } from './live-settings.ts';
import type { BoundCommand } from './command.ts';
import { type GlobalOptions, isExposed } from './flags/global.ts';
import type { HangUp, ProcessLike, StopReason } from './lifecycle.ts';
import { programVersion, userAgent } from './version.ts';

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

/**
 * Starts the metrics and health servers, with TLS and authentication according to the flags. Adds to `ends` what to call
 * after they are closed. Rejects with KPNG_TLS_FILE or KPNG_KUBECONFIG before anything is served.
 */
async function observeServers(
  options: ServersOptions,
  globals: GlobalOptions,
  ends: (() => void)[],
): Promise<HttpServer> {
  const { metricsAddress } = options;
  const [metricsTls, healthTls] = await Promise.all([
    tlsFor('metrics', 'metrics', options, globals),
    tlsFor('health', 'healthz', options, globals),
  ]);
  const isDelegated = globals.metricsAuthentication === 'delegated';
  const guard =
    isDelegated && metricsAddress !== undefined && isExposed(metricsAddress)
      ? await guardFor(options, globals)
      : undefined;
  for (const each of [guard, metricsTls, healthTls]) if (each) ends.push(() => each.close());
  const { startServers } = await import('../observe/servers.ts');
  const secure = { metrics: metricsTls?.create, health: healthTls?.create };
  return startServers({ ...options, secure, guard: guard?.check });
}

/** `prefix`: of the flags for the files. Undefined without files; then no TLS code is loaded. */
async function tlsFor(
  name: string,
  prefix: 'metrics' | 'healthz',
  { log, clock }: ServersOptions,
  globals: GlobalOptions,
): Promise<TlsServers | undefined> {
  const files = { crt: globals[`${prefix}TlsCrt`], key: globals[`${prefix}TlsKey`] };
  if (files.crt === '' && files.key === '') return undefined;
  const flags = { crt: `--${prefix}-tls-crt`, key: `--${prefix}-tls-key`, ca: '' };
  const { tlsServers } = await import('../observe/access.ts');
  return tlsServers({ name, files, flags, clock, log });
}

/** Access control for metrics, with the connections for its reviews. */
async function guardFor({ metrics, log, clock }: ServersOptions, globals: GlobalOptions) {
  const [{ ApiAccess }, { KubeApi }, { DEFAULT_KUBE_LIMITS }, { Reviews, REVIEW_LIMITS }, guard] =
    await Promise.all([
      import('../kube/access.ts'),
      import('../kube/api.ts'),
      import('../kube/limits.ts'),
      import('../kube/reviews.ts'),
      import('../observe/access.ts'),
    ]);
  const { responseTimeoutMs } = REVIEW_LIMITS;
  const limits = {
    ...DEFAULT_KUBE_LIMITS,
    responseTimeoutMs,
    credentialsTimeoutMs: responseTimeoutMs,
  };
  const access = await ApiAccess.open({
    kubeconfig: globals.authenticationKubeconfig,
    server: '',
    env: process.env,
    limits,
    clock,
  });
  const reviews = new Reviews(new KubeApi(access, userAgent()));
  const review = (token: string, path: string) => reviews.review(token, path);
  const check = guard.guardPages({ review, metrics, log, clock });
  return { check, close: () => access.close() };
}

/** Every address of the host, as the kernel writes it, with and without IPv6. */
const EVERYWHERE = ['::', '0.0.0.0'];

/** The socket of an HTTP server that the previous process handed over, if any. */
export function inheritServer({ host, port }: HostPort): number | undefined {
  for (const address of host === '' ? EVERYWHERE : [host]) {
    const fd = takeInherited('TCP', address, port);
    if (fd !== undefined) return fd;
  }
  return undefined;
}
