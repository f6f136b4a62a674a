import { once } from 'node:events';
import { KpngError, type ErrorCode } from '../errors.ts';
import type { Log } from '../observe/log.ts';
import { systemClock } from '../util/clock.ts';
import { formatDuration } from '../util/duration.ts';
import { Activation } from '../util/activation.ts';
import type { Running } from './command.ts';
import { LiveSettings } from './live-settings.ts';
import { drain, remainingOf, setOomScore, watchProcess, type StopReason } from './lifecycle.ts';
import { observe, type Live, type Observers, type RunOptions } from './observers.ts';
import { prepare } from './prepare.ts';
import { programVersion } from './version.ts';

/** Configuration errors, which retrying cannot fix. */
const CONFIGURATION_ERRORS: ReadonlySet<ErrorCode> = new Set([
  'KPNG_USAGE',
  'KPNG_TLS_FILE',
  'KPNG_KUBECONFIG',
]);

/** Runs a source into a sink until a signal, and returns the exit code: 0, 1 or 2. */
export async function run(given: RunOptions): Promise<number> {
  const { log, source, sink, process, hangUp } = given;
  const started = Promise.withResolvers<Running>();
  const live = new LiveSettings(given, log, (change) => {
    // The file may change before there is a data path.
    const changed = started.promise.then((running) => running.setLimits?.(change));
    changed.catch((error: unknown) => log.error('Limits not changed', { err: error }));
  });
  const { dryRun = false, handoverSocket = '' } = sink.options;
  const activation = handoverSocket === '' || dryRun ? Activation.immediate() : new Activation();
  const asked = Promise.withResolvers<StopReason>();
  const stop = asked.resolve;
  const options: Live = { ...given, globals: live.globals, live, stop, activation };
  let observers: Observers;
  try {
    observers = await observe(options);
  } catch (error) {
    return failed('Startup failed', error, log);
  }
  // The code for that is loaded only if there is a file.
  const config =
    given.config && (await import('./config-file.ts')).followConfig(given.config, live);
  const onHangUp = config && (() => config.again());
  const endWatch = watchProcess({ process, log, hangUp, onStop: stop, onHangUp });
  void asked.promise.then(({ logFields }) => {
    log.info('Stopping', logFields);
    observers.health.change({ stopping: true });
  });
  // Clock timers do not keep the process alive; this does while a source waits.
  const alive = setInterval(() => {}, 2 ** 31 - 1);
  try {
    log.info('Starting', {
      version: programVersion(),
      source: source.word,
      sink: sink.word,
      ...(sink.scope === 'local' && { node: sink.options.nodeName }),
    });
    await setOomScore(live.globals.oomScoreAdj, log);
    const { running, work } = await prepare(options, observers);
    started.resolve(running);
    return await carry(running, work, options, observers, asked.promise);
  } catch (error) {
    const hasStarted = observers.health.facts.firstSyncAt !== undefined;
    return failed(hasStarted ? 'Failed; exiting' : 'Startup failed', error, log);
  } finally {
    clearInterval(alive);
    config?.close();
    await observers.close();
    endWatch();
  }
}

/** Logs the cause of the end, and returns the exit code. */
function failed(message: string, error: unknown, log: Log): 1 | 2 {
  log.error(message, { err: error });
  return error instanceof KpngError && CONFIGURATION_ERRORS.has(error.code) ? 2 : 1;
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
  void running.ended?.then(endNow);
  void running.handedOver?.then((newProcess) => {
    void observers.leave(newProcess);
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
    await drain(
      fed.then(() => running.close()),
      {
        log,
        clock: systemClock,
        timeoutMs: Math.min(globals.drainTimeout, withinMs),
        remaining: proxy && (() => remainingOf(proxy.engine.snapshot())),
      },
    );
  } finally {
    await running.destroy();
  }
  const code = (await running.afterwards?.(asked)) ?? 0;
  log.info('Stopped');
  return code;
}
