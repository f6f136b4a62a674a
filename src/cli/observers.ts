import type { Admin } from '../admin/start.ts';
import type { ProxySubject } from '../admin/subject.ts';
import { followEvents, Health } from '../observe/health.ts';
import { subscribeLog } from '../observe/log-rules.ts';
import { SINK_RULES, SOURCE_RULES } from '../observe/log-table.ts';
import type { Metrics } from '../observe/metrics.ts';
import { summaryReader } from '../observe/service-state.ts';
import { systemClock } from '../util/clock.ts';
import type { HttpServer } from '../util/http-server.ts';
import { type GlobalOptions, isExposed } from './flags/global.ts';
import type { Live } from './lifecycle.ts';
import { configz } from './live-settings.ts';
import { programVersion, userAgent } from './version.ts';

/** The observers of a run, which end together. */
export type Observers = Awaited<ReturnType<typeof observe>>;

/** Starts log lines, health and the servers. Metrics are loaded only if they can be scraped. */
export async function observe(options: Live) {
  const { source, sink, globals, settings, log, stop, activation } = options;
  const health = new Health();
  const isDry = sink.options.dryRun === true;
  // A dry run logs no changes.
  const rules = isDry ? SOURCE_RULES : [...SOURCE_RULES, ...SINK_RULES];
  const ends = [subscribeLog(log, rules), followEvents(health)];
  /** The value of a flag with an address; undefined: nothing is served there. */
  const wanted = <Field extends keyof GlobalOptions>(field: Field) => {
    const isGiven = settings.some((each) => each.field === field && each.origin.text !== 'default');
    return !isDry && (sink.options.limits !== undefined || isGiven) ? globals[field] : undefined;
  };
  const version = programVersion();
  const metricsAddress = wanted('metricsBindAddress');
  const healthAddress = wanted('healthzBindAddress');
  const shared = { health, log, clock: systemClock, activation };
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
  let servers: readonly HttpServer[] = [];
  if (metricsAddress !== undefined || healthAddress !== undefined) {
    const { startServers } = await import('../observe/servers.ts');
    const isExposing = metricsAddress !== undefined && isExposed(metricsAddress);
    const isGuarded = isExposing && globals.metricsAuthentication === 'delegated';
    servers = startServers({
      ...shared,
      metrics,
      configz: () => configz(options, log.verbosity),
      metricsAddress,
      healthAddress,
      secure: {
        metrics: await httpsFor('metrics', options),
        health: await httpsFor('health', options),
      },
      guard: isGuarded ? await guardFor(options, metrics, ends) : undefined,
    });
  }
  let proxy: ProxySubject | undefined;
  const socketPath = wanted('adminSocket') ?? '';
  const pageAddress = wanted('statusBindAddress');
  let admin: Admin | undefined;
  if (socketPath !== '' || pageAddress !== undefined) {
    const { startAdmin } = await import('../admin/start.ts');
    const subject = {
      ...shared,
      version,
      command: `${source.word} ${sink.word}`,
      nodeName: sink.options.nodeName,
      drainDelayMs: () => globals.drainDelay,
      proxy: () => proxy,
      stop: () => stop({ logFields: { by: 'the admin socket' } }),
    };
    admin = await startAdmin({ ...shared, socketPath, pageAddress, subject });
  }
  let left: Promise<void> | undefined;
  return {
    health,
    metrics,
    /** Begins to observe the data path. */
    onProxy(started: ProxySubject): void {
      proxy = started;
      metrics?.observe(started);
      health.readFrom({ problems: () => started.problems(), services: summaryReader(started) });
    },
    /** Another process has taken over and serves the same addresses. Resolves when open requests have been answered. */
    leave(newProcess: number): Promise<void> {
      // The admin API marks this process as replaced, and a probe that it still has to answer would fail.
      left ??= Promise.all(servers.map((each) => each.leave())).then(() =>
        admin?.leave(newProcess),
      );
      return left;
    },
    async close(): Promise<void> {
      // Closing at once would reset clients that connected before the new process served.
      await left;
      await Promise.all([...servers.map((each) => each.close()), admin?.close()]);
      for (const end of ends) end();
    },
  };
}

/** Creates an HTTPS server, if there are files; otherwise no TLS code is loaded. Rejects with KPNG_TLS_FILE. */
async function httpsFor(name: 'metrics' | 'health', { log, globals }: Live) {
  const prefix = name === 'health' ? 'healthz' : name;
  const files = { crt: globals[`${prefix}TlsCrt`], key: globals[`${prefix}TlsKey`] };
  if (files.crt === '' && files.key === '') return undefined;
  const flags = { crt: `--${prefix}-tls-crt`, key: `--${prefix}-tls-key`, ca: '' };
  const { createHttps } = await import('../observe/access.ts');
  return createHttps({ name, files, flags, clock: systemClock, log });
}

/** Access control for metrics, with the connections for its reviews. Rejects with KPNG_KUBECONFIG. */
async function guardFor(
  { log, globals }: Live,
  metrics: Metrics | undefined,
  ends: (() => void)[],
) {
  const { openKubeApi } = await import('../kube/api.ts');
  const { DEFAULT_KUBE_LIMITS } = await import('../kube/limits.ts');
  const { reviewsBy, REVIEW_LIMITS } = await import('../kube/reviews.ts');
  const { guardPages } = await import('../observe/access.ts');
  const { responseTimeoutMs } = REVIEW_LIMITS;
  const api = await openKubeApi({
    kubeconfig: globals.authenticationKubeconfig,
    server: '',
    env: process.env,
    limits: { ...DEFAULT_KUBE_LIMITS, responseTimeoutMs, credentialsTimeoutMs: responseTimeoutMs },
    clock: systemClock,
    userAgent: userAgent(),
  });
  ends.push(() => api.close());
  return guardPages({ review: reviewsBy(api), metrics, log, clock: systemClock });
}
