import { KpngError } from '../errors.ts';
import { parseHostPort } from '../util/host-port.ts';
import type { Timer } from '../util/clock.ts';
import { drainText, type Drain } from '../proxier/drains.ts';
import { numberOf, type Operation, type OperationInput } from './operations.ts';
import { proxyOf } from './standard.ts';
import type { ProcessSubject, ProxySubject } from './subject.ts';

/** The result of `drain` and `undrain`. */
export interface DrainOutcome {
  /** What is drained, or no longer drained; `all` when every drain was removed. */
  readonly what: string;
  /** Number of affected service ports. */
  readonly servicePorts: number;
  /** Their open connections and sessions. */
  readonly active: number;
  /** Delay before new clients are refused. Absent: at once. */
  readonly inSeconds?: number;
}

/** The result of `stop`. */
export interface StopOutcome {
  readonly pid: number;
  /** Open connections and sessions, which are drained. */
  readonly active: number;
}

const MAX_LOG_LEVEL = 10;

/** The operations that change the process. */
export function changingOperations(subject: ProcessSubject): Operation[] {
  const level = (): { level: number } => ({ level: subject.log.verbosity });
  const drains = new ProcessDrain(subject);
  return [
    {
      name: 'loglevel',
      summary: 'the log level',
      access: 'private',
      inputs: [],
      run: level,
    },
    {
      name: 'loglevel',
      summary: 'changes the log level until the process ends',
      access: 'change',
      inputs: ['level'],
      run(input) {
        const given = input['level'] ?? '';
        if (given === '')
          throw new KpngError('KPNG_USAGE', 'level: expected a number from 0 to 10');
        const before = subject.log.verbosity;
        const now = numberOf(input, 'level', { min: 0, max: MAX_LOG_LEVEL, byDefault: before });
        subject.log.info('Log level changed', { from: before, to: now });
        subject.log.setVerbosity(now);
        return level();
      },
    },
    {
      name: 'drain',
      summary:
        'accepts no new connections for a service, an endpoint, or at all; open ones continue',
      access: 'change',
      inputs: ['service', 'endpoint'],
      run: (input) => drain(subject, drains, drainOf(input)),
    },
    {
      name: 'undrain',
      summary: 'removes a drain; without a name, all of them',
      access: 'change',
      inputs: ['service', 'endpoint'],
      run: (input) => undrain(subject, drains, drainOf(input)),
    },
    {
      name: 'stop',
      summary: 'ends the process in order: open connections drain, as after TERM',
      access: 'change',
      inputs: [],
      run: () => stop(subject),
    },
  ];
}

function drainOf({ service = '', endpoint = '' }: OperationInput): Drain {
  if (endpoint === '') {
    return service === '' ? { kind: 'process' } : { kind: 'service', service };
  }
  const target = parseHostPort(endpoint);
  if (target === undefined || target.host === '' || target.port === 0) {
    throw new KpngError(
      'KPNG_USAGE',
      `endpoint ${JSON.stringify(endpoint)}: expected ip:port or [ip6]:port`,
    );
  }
  return { kind: 'endpoint', endpoint, ...(service !== '' && { service }) };
}

async function drain(
  subject: ProcessSubject,
  drains: ProcessDrain,
  what: Drain,
): Promise<DrainOutcome> {
  const { proxier } = drainable(subject);
  if (what.kind === 'process') return drains.begin(proxier);
  const outcome = outcomeOf(subject, drainText(what), await proxier.drain(what));
  subject.log.info(DRAINING, { ...outcome });
  return outcome;
}

/** Throws KPNG_ADMIN_REFUSED if the process accepts no new connections anyway. */
function drainable(subject: ProcessSubject): ProxySubject {
  const newProcess = subject.health.facts.replacedBy;
  if (newProcess === undefined) return proxyOf(subject);
  throw new KpngError(
    'KPNG_ADMIN_REFUSED',
    `process ${newProcess} has taken over and accepts the new connections; process ${process.pid} accepts none`,
  );
}

const DRAINING = 'Draining: no new connections';

/** Without a name, removes all drains. */
async function undrain(
  subject: ProcessSubject,
  drains: ProcessDrain,
  what: Drain,
): Promise<DrainOutcome> {
  const { proxier } = drainable(subject);
  const isAll = what.kind === 'process';
  if (isAll) drains.cancel();
  const names = await proxier.undrain(isAll ? undefined : what);
  if (isAll) drains.end();
  const outcome = outcomeOf(subject, isAll ? 'all' : drainText(what), names);
  subject.log.info('No longer draining', { ...outcome });
  return outcome;
}

/** The drain of the whole process: health fails first, so that load balancers have time to use other nodes. */
class ProcessDrain {
  readonly #subject: ProcessSubject;
  #timer: Timer | undefined;

  constructor(subject: ProcessSubject) {
    this.#subject = subject;
  }

  async begin(proxier: ProxySubject['proxier']): Promise<DrainOutcome> {
    const { health, clock, log } = this.#subject;
    health.change({ draining: true });
    const delayMs = proxier.drains.isAllDrained ? 0 : (this.#subject.drainDelayMs?.() ?? 0);
    this.#timer?.cancel();
    if (delayMs === 0) return this.#refuse(proxier);
    this.#timer = clock.setTimer(delayMs, () => {
      this.#refuse(proxier).catch((error: unknown) => log.error('Draining failed', { err: error }));
    });
    const all = outcomeOf(this.#subject, EVERYTHING, undefined);
    const outcome = { ...all, inSeconds: delayMs / 1000 };
    log.info('Draining after the drain delay; health checks fail from now on', {
      ...outcome,
    });
    return outcome;
  }

  /** Keeps new clients from being refused when the drain delay ends. */
  cancel(): void {
    this.#timer?.cancel();
  }

  end(): void {
    this.#subject.health.change({ draining: false });
  }

  async #refuse(proxier: ProxySubject['proxier']): Promise<DrainOutcome> {
    let names: readonly string[];
    try {
      names = await proxier.drain({ kind: 'process' });
    } catch (error) {
      this.#subject.health.change({ draining: proxier.drains.isAllDrained });
      throw error;
    }
    const outcome = outcomeOf(this.#subject, EVERYTHING, names);
    this.#subject.log.info(DRAINING, { ...outcome });
    return outcome;
  }
}

function stop(subject: ProcessSubject): StopOutcome {
  const snapshots = subject.proxy()?.engine.snapshot() ?? [];
  const active = snapshots.reduce((sum, { counters }) => sum + counters.active, 0);
  // Answer first: with nothing to drain, the socket would be closed before.
  setImmediate(() => subject.stop());
  return { pid: process.pid, active };
}

const EVERYTHING = drainText({ kind: 'process' });

/** Without names: of all service ports. */
function outcomeOf(
  subject: ProcessSubject,
  what: string,
  names: readonly string[] | undefined,
): DrainOutcome {
  const { engine } = proxyOf(subject);
  const snapshots = engine.snapshot(names && new Set(names));
  const active = snapshots.reduce((sum, { counters }) => sum + counters.active, 0);
  return { what, servicePorts: names?.length ?? snapshots.length, active };
}
