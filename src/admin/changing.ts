import { KpngError } from '../errors.ts';
import { parseHostPort } from '../util/host-port.ts';
import type { Timer } from '../util/clock.ts';
import { drainText, type Drain } from '../proxier/drains.ts';
import { numberOf, operation, type Operation, type OperationInput, usage } from './handler.ts';
import { proxyOf } from './standard.ts';
import type { ProcessSubject, ProxySubject } from './subject.ts';

export interface DrainOutcome {
  /** What is drained, or no longer drained; `all` when every drain was removed. */
  readonly what: string;
  readonly servicePorts: number;
  /** Their open connections and sessions. */
  readonly active: number;
  /** Delay before new clients are refused. Absent: at once. */
  readonly inSeconds?: number;
}

export interface StopOutcome {
  readonly pid: number;
  /** Open connections and sessions, which are drained. */
  readonly active: number;
}

const MAX_LOG_LEVEL = 10;

export function changingOperations(subject: ProcessSubject): Operation[] {
  const { health, log, clock } = subject;
  let timer: Timer | undefined;

  /** Without names: of all service ports. */
  const outcomeOf = (what: string, names?: readonly string[]): DrainOutcome => {
    const { active, count } = connectionsOf(subject, names);
    return { what, servicePorts: names?.length ?? count, active };
  };
  const begin = async (what: Drain): Promise<DrainOutcome> => {
    const { proxier } = proxyOf(subject);
    const names = await proxier.drain(what).catch((error: unknown) => {
      if (what.kind === 'process') health.change({ draining: proxier.drains.isAllDrained });
      throw error;
    });
    const outcome = outcomeOf(drainText(what), names);
    log.info('Draining: no new connections', { ...outcome });
    return outcome;
  };
  const drain = async (what: Drain): Promise<DrainOutcome> => {
    const { drains } = drainable(subject);
    if (what.kind !== 'process') return begin(what);
    // Health fails first, so that load balancers have time to use other nodes.
    health.change({ draining: true });
    timer?.cancel();
    const delayMs = drains.isAllDrained ? 0 : (subject.drainDelayMs?.() ?? 0);
    if (delayMs === 0) return begin(what);
    timer = clock.setTimer(delayMs, () => {
      begin(what).catch((err: unknown) => log.error('Draining failed', { err }));
    });
    const outcome = { ...outcomeOf(drainText(what)), inSeconds: delayMs / 1000 };
    log.info('Draining after the drain delay; health checks fail from now on', { ...outcome });
    return outcome;
  };
  const undrain = async (what: Drain): Promise<DrainOutcome> => {
    const proxier = drainable(subject);
    const isAll = what.kind === 'process';
    // The end of the drain delay must not refuse new clients.
    if (isAll) timer?.cancel();
    const names = await proxier.undrain(isAll ? undefined : what);
    if (isAll) health.change({ draining: false });
    const outcome = outcomeOf(isAll ? 'all' : drainText(what), names);
    log.info('No longer draining', { ...outcome });
    return outcome;
  };
  const level = (): { level: number } => ({ level: log.verbosity });
  return [
    operation('private loglevel', 'the log level', level),
    operation('change loglevel level', 'changes the log level until the process ends', (input) => {
      const bounds = { min: 0, max: MAX_LOG_LEVEL, byDefault: NaN };
      const to = numberOf(input, 'level', bounds);
      if (Number.isNaN(to)) throw usage('level: expected a number from 0 to 10');
      log.info('Log level changed', { from: log.verbosity, to });
      log.setVerbosity(to);
      return level();
    }),
    operation(
      'change drain service endpoint',
      'accepts no new connections for a service, an endpoint, or at all; open ones continue',
      (input) => drain(drainOf(input)),
    ),
    operation(
      'change undrain service endpoint',
      'removes a drain; without a name, all of them',
      (input) => undrain(drainOf(input)),
    ),
    operation(
      'change stop',
      'ends the process in order: open connections drain, as after TERM',
      (): StopOutcome => {
        const { active } = connectionsOf(subject);
        // Answer first: with nothing to drain, the socket would be closed before.
        setImmediate(() => subject.stop());
        return { pid: process.pid, active };
      },
    ),
  ];
}

function drainOf(input: OperationInput): Drain {
  const { service = '', endpoint = '' } = input;
  if (endpoint === '' && service !== '') return { kind: 'service', service };
  if (endpoint === '') {
    // A variable that is empty in a script must not drain the whole process.
    if (Object.keys(input).length === 0) return { kind: 'process' };
    throw usage('service, endpoint: empty; leave them out to name everything');
  }
  const target = parseHostPort(endpoint);
  if (target === undefined || target.host === '' || target.port === 0) {
    throw usage(`endpoint ${JSON.stringify(endpoint)}: expected ip:port or [ip6]:port`);
  }
  return { kind: 'endpoint', endpoint, ...(service !== '' && { service }) };
}

/** Throws KPNG_ADMIN_REFUSED if the process accepts no new connections anyway. */
function drainable(subject: ProcessSubject): ProxySubject['proxier'] {
  const newProcess = subject.health.facts.replacedBy;
  if (newProcess === undefined) return proxyOf(subject).proxier;
  throw new KpngError(
    'KPNG_ADMIN_REFUSED',
    `process ${newProcess} has taken over and accepts the new connections; process ${process.pid} accepts none`,
  );
}

/** How many connections and sessions some service ports have, or all of them. */
function connectionsOf(subject: ProcessSubject, names?: readonly string[]) {
  const snapshots = subject.proxy()?.engine.snapshot(names && new Set(names)) ?? [];
  const active = snapshots.reduce((sum, { counters }) => sum + counters.active, 0);
  return { active, count: snapshots.length };
}
