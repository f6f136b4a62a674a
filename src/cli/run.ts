import type { Writable } from 'node:stream';
import type { Admin } from '../admin/start.ts';
import type { ProcessSubject, ProxySubject } from '../admin/subject.ts';
import { KpngError, type ErrorCode } from '../errors.ts';
import { Health } from '../observe/health.ts';
import { followPortal, followSources } from '../observe/health-events.ts';
import type { HttpServer } from '../observe/http-server.ts';
import { CONFIG_RULES } from '../observe/log-config.ts';
import { DATA_PATH_RULES } from '../observe/log-data-path.ts';
import { FILE_RULES } from '../observe/log-file.ts';
import { KUBE_RULES } from '../observe/log-kube.ts';
import { PORTAL_RULES } from '../observe/log-portal.ts';
import { subscribeLog } from '../observe/log-rules.ts';
import { SERVER_RULES } from '../observe/log-server.ts';
import { SINK_RULES } from '../observe/log-sinks.ts';
import { STATE_RULES } from '../observe/log-state.ts';
import type { AdjustableLog } from '../observe/log.ts';
import type { Metrics } from '../observe/metrics.ts';
import { systemClock } from '../util/clock.ts';
import { formatDuration } from '../util/duration.ts';
import { appliers, type ChangingOptions } from './appliers.ts';
import type { BoundSink, BoundSource } from './command.ts';
import { configz } from './configz.ts';
import type { GlobalOptions } from './flags/global.ts';
import { watchProcess, type ProcessLike } from './lifecycle.ts';
import { LiveSettings } from './live-settings.ts';
import { setOomScore } from './oom-score.ts';
import { prepare } from './prepare.ts';
import type { FollowConfigOptions, FollowedConfig } from './reload.ts';
import type { EffectiveSetting } from './settings.ts';
import { drain, remainingOf } from './stopping.ts';
import { programVersion } from './version.ts';

/** A command line that was understood and is to be carried out. */
export interface RunOptions {
  readonly source: BoundSource;
  readonly sink: BoundSink;
  readonly globals: GlobalOptions;
  /** Names of the flags that were given. */
  readonly given: ReadonlySet<string>;
  readonly log: AdjustableLog;
  readonly process: ProcessLike;
  readonly stdout: Writable;
  /** Whether a terminal is behind the process. */
  readonly terminal: boolean;
  /** The words of the command and what it is set to, for those who ask. */
  readonly command?: readonly string[];
  readonly settings?: readonly EffectiveSetting[];
  /** The configuration file, if there is one, to be followed. */
  readonly config?: Pick<FollowConfigOptions, 'path' | 'read'>;
}

/** The options with those that may change. */
interface Live extends RunOptions {
  readonly globals: ChangingOptions;
  readonly live: LiveSettings;
}

const SOURCE_RULES = [
  ...CONFIG_RULES,
  ...FILE_RULES,
  ...KUBE_RULES,
  ...STATE_RULES,
  ...SERVER_RULES,
];

const WORK_RULES = [...PORTAL_RULES, ...SINK_RULES, ...DATA_PATH_RULES];

/** Errors of the configuration, which no amount of trying can cure. */
const CONFIGURATION_ERRORS: ReadonlySet<ErrorCode> = new Set([
  'KPNG_USAGE',
  'KPNG_TLS_FILE',
  'KPNG_KUBECONFIG',
]);

/** Everything that watches, so that it can be ended together. */
interface Observers {
  readonly health: Health;
  readonly metrics: Metrics | undefined;
  readonly onProxy: (proxy: ProxySubject) => void;
  /** Frees the ports of metrics and health, and the admin socket. Idempotent. */
  closeServers(): Promise<void>;
  close(): Promise<void>;
}

/** Runs a source into a sink until a signal, and returns the exit code: 0, 1 or 2. */
export async function run(given: RunOptions): Promise<number> {
  const { log, source, sink, command = [], settings = [] } = given;
  const globals = { ...given.globals };
  const live = new LiveSettings({ command, settings }, appliers(globals, log));
  const options: Live = { ...given, globals, live };
  let observers: Observers;
  try {
    observers = await observe(options);
  } catch (error) {
    return cannotGoOn(error, log);
  }
  const config = await follow(options);
  const stop = new AbortController();
  const endWatch = watchProcess({
    process: options.process,
    log,
    terminal: options.terminal,
    onStop(signal) {
      log.info('Stopping', { signal });
      observers.health.stopping();
      stop.abort();
    },
    ...(config !== undefined && { onHangUp: () => config.again() }),
  });
  // Timers of the clock let the process end; while a source waits, this keeps it.
  const alive = setInterval(() => {}, 2 ** 31 - 1);
  try {
    log.info('Starting', {
      version: programVersion(),
      source: source.word,
      sink: sink.word,
      ...(sink.scope === 'local' && { node: sink.nodeName }),
    });
    await setOomScore(options.globals['oom-score-adj'], log);
    return await carry(options, observers, stop.signal);
  } catch (error) {
    return cannotGoOn(error, log);
  } finally {
    clearInterval(alive);
    config?.close();
    await observers.close();
    endWatch();
  }
}

function cannotGoOn(error: unknown, log: AdjustableLog): 1 | 2 {
  log.error('Cannot go on', { err: error });
  return isConfiguration(error) ? 2 : 1;
}

/** Follows the configuration file; the code for that is loaded only if there is one. */
async function follow({ config, live }: Live): Promise<FollowedConfig | undefined> {
  if (config === undefined) return undefined;
  const { followConfig } = await import('./reload.ts');
  return followConfig({ ...config, live, clock: systemClock });
}

async function carry(options: Live, observers: Observers, asked: AbortSignal): Promise<number> {
  const { log, globals } = options;
  const { running, work } = await prepare(options, observers);
  const { dataPath } = running;
  const end = new AbortController();
  const endNow = (): void => end.abort();
  void running.ended?.then(endNow);
  void running.handedOver?.then(async () => {
    // The successor waits for these ports.
    await observers.closeServers();
    endNow();
  });
  const serves = (): boolean =>
    dataPath !== undefined && observers.health.facts.firstSyncAt !== undefined;
  const endLater = (): void => {
    const delayMs = serves() ? globals['drain-delay'] : 0;
    if (delayMs === 0) return endNow();
    log.info('Serving new connections for the drain delay', {
      drainDelay: formatDuration(delayMs),
    });
    systemClock.setTimer(delayMs, endNow);
  };
  if (asked.aborted) endLater();
  else asked.addEventListener('abort', endLater, { once: true });
  try {
    const fed = work(end.signal);
    await Promise.race([fed, aborted(end.signal)]);
    // A sink that is stuck, such as a reader that does not read, must not keep the program.
    await drain(
      fed.then(() => running.close()),
      {
        log,
        clock: systemClock,
        timeoutMs: globals['drain-timeout'],
        remaining: dataPath && (() => remainingOf(dataPath.snapshot())),
      },
    );
  } finally {
    await running.destroy();
  }
  const code = (await running.afterwards?.(aborted(asked))) ?? 0;
  log.info('Stopped');
  return code;
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** Starts log lines, health and the servers. Metrics are loaded only if somebody may ask for them. */
async function observe(options: Live): Promise<Observers> {
  const { sink, globals, given, log, live } = options;
  const health = new Health();
  // What a dry run would do is no news.
  const rules = sink.isDry === true ? SOURCE_RULES : [...SOURCE_RULES, ...WORK_RULES];
  const ends = [subscribeLog(log, rules), followSources(health), followPortal(health)];
  const isWanted = (flag: keyof GlobalOptions): boolean =>
    sink.isDry !== true && (sink.servesByDefault || given.has(flag));
  const wanted = (flag: 'metrics-bind-address' | 'healthz-bind-address' | 'status-bind-address') =>
    isWanted(flag) ? globals[flag] : undefined;
  const metricsAddress = wanted('metrics-bind-address');
  const healthAddress = wanted('healthz-bind-address');
  let metrics: Metrics | undefined;
  if (metricsAddress !== undefined) {
    const { createMetrics } = await import('../observe/metrics.ts');
    metrics = createMetrics({
      version: programVersion(),
      perEndpoint: globals['metrics-per-endpoint'],
    });
    ends.push(() => metrics?.close());
  }
  let servers: HttpServer | undefined;
  if (metricsAddress !== undefined || healthAddress !== undefined) {
    const { observeServers } = await import('./observe-servers.ts');
    servers = await observeServers({
      metricsAddress,
      healthAddress,
      health,
      metrics,
      configz: () => configz(live, log.verbosity),
      log,
      globals,
      clock: systemClock,
    });
  }
  let proxy: ProxySubject | undefined;
  const socketPath = isWanted('admin-socket') ? globals['admin-socket'] : '';
  const pageAddress = wanted('status-bind-address');
  let admin: Admin | undefined;
  if (socketPath !== '' || pageAddress !== undefined) {
    const { startAdmin } = await import('../admin/start.ts');
    const subject = processSubject(options, health, () => proxy);
    admin = startAdmin({ socketPath, pageAddress, subject, uid: process.getuid?.() });
  }
  const closeServers = async (): Promise<void> => {
    await Promise.all([servers?.close(), admin?.close()]);
  };
  return {
    health,
    metrics,
    onProxy: (started) => (proxy = started),
    closeServers,
    async close() {
      await closeServers();
      for (const end of ends) end();
    },
  };
}

/** What the admin API knows of this process. */
function processSubject(
  { source, sink, log, globals }: RunOptions,
  health: Health,
  proxy: () => ProxySubject | undefined,
): ProcessSubject {
  return {
    version: programVersion(),
    command: `${source.word} ${sink.word}`,
    nodeName: sink.scope === 'local' ? sink.nodeName : undefined,
    health,
    log,
    clock: systemClock,
    drainDelayMs: () => globals['drain-delay'],
    proxy,
  };
}

function isConfiguration(error: unknown): boolean {
  return error instanceof KpngError && CONFIGURATION_ERRORS.has(error.code);
}
