import { KpngError, type ErrorCode } from '../errors.ts';
import type { Log } from '../observe/log.ts';
import type { LimitChange } from '../proxysocket/limits.ts';
import { systemClock } from '../util/clock.ts';
import { formatDuration } from '../util/duration.ts';
import { Activation } from '../util/activation.ts';
import type { Running } from './command.ts';
import { applyTo, LiveSettings } from './live-settings.ts';
import {
  watchProcess,
  type StopReason,
  setOomScore,
  drain,
  remainingOf,
  stopTimes,
  type StopTimes,
} from './lifecycle.ts';
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
  const { log, source, sink, command = [], settings = [] } = given;
  const globals = { ...given.globals };
  const started = Promise.withResolvers<Running>();
  const setLimits = (change: LimitChange): void => {
    // The file may change before there is a data path.
    const changed = started.promise.then((running) => running.setLimits?.(change));
    changed.catch((error: unknown) => log.error('Limits not changed', { err: error }));
  };
  const live = new LiveSettings({ command, settings }, applyTo(globals, log, setLimits));
  const { dryRun = false, handoverSocket = '' } = sink.options;
  const activation = handoverSocket === '' || dryRun ? Activation.immediate() : new Activation();
  const asked = new AbortController();
  const stop = (reason: StopReason): void => asked.abort(reason);
  const options: Live = { ...given, globals, live, started: started.resolve, stop, activation };
  let observers: Observers;
  try {
    observers = await observe(options);
  } catch (error) {
    return failed('Startup failed', error, log);
  }
  // The code for that is loaded only if there is a file.
  const config =
    given.config &&
    (await import('./reload.ts')).followConfig({ ...given.config, live, clock: systemClock });
  const { process, hangUp } = options;
  const onHangUp = config && (() => config.again());
  const endWatch = watchProcess({ process, log, hangUp, onStop: stop, onHangUp });
  void aborted(asked.signal).then(() => {
    log.info('Stopping', reasonOf(asked.signal).logFields);
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
    await setOomScore(options.globals.oomScoreAdj, log);
    return await carry(options, observers, asked.signal);
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

async function carry(options: Live, observers: Observers, asked: AbortSignal): Promise<number> {
  const { log, globals } = options;
  const { running, work } = await prepare({ ...options, stopping: asked }, observers);
  options.started(running);
  const { dataPath } = running;
  const end = new AbortController();
  const endNow = (): void => end.abort();
  void running.ended?.then(endNow);
  void running.handedOver?.then((newProcess) => {
    void observers.leave(newProcess);
    endNow();
  });
  const serves = (): boolean =>
    dataPath !== undefined && observers.health.facts.firstSyncAt !== undefined;
  const times = (): StopTimes =>
    stopTimes(
      { delayMs: globals.drainDelay, timeoutMs: globals.drainTimeout },
      asked.aborted ? reasonOf(asked).withinMs : undefined,
    );
  void aborted(asked).then(() => {
    const delayMs = serves() ? times().delayMs : 0;
    if (delayMs === 0) return endNow();
    const drainDelay = formatDuration(delayMs);
    log.info('Serving new connections for the drain delay', { drainDelay });
    systemClock.setTimer(delayMs, endNow);
  });
  try {
    const fed = work(end.signal);
    await Promise.race([fed, aborted(end.signal)]);
    // A stuck sink, such as one whose output is not read, must not keep the program alive.
    await drain(
      fed.then(() => running.close()),
      {
        log,
        clock: systemClock,
        timeoutMs: times().timeoutMs,
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

/** Of a signal that was aborted. */
function reasonOf(asked: AbortSignal): StopReason {
  return asked.reason as StopReason;
}
