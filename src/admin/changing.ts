import { KpngError } from '../errors.ts';
import { parseHostPort } from '../util/host-port.ts';
import { drainText, type Drain } from './drains.ts';
import { numberOf, type Operation, type OperationInput } from './operations.ts';
import { proxyOf } from './standard.ts';
import type { ProcessSubject } from './subject.ts';

/** What drain and undrain answer. */
export interface DrainOutcome {
  /** What is drained now, or no longer; `all` when every drain was taken back. */
  readonly what: string;
  /** How many service ports that concerns. */
  readonly servicePorts: number;
  /** Connections and sessions of them that are open. */
  readonly active: number;
}

export const MAX_LOG_LEVEL = 10;

/** What changes something in the process. */
export function changingOperations(subject: ProcessSubject): Operation[] {
  const level = (): { level: number } => ({ level: subject.log.verbosity });
  return [
    {
      name: 'loglevel',
      summary: 'how much is logged',
      access: 'private',
      inputs: [],
      run: level,
    },
    {
      name: 'loglevel',
      summary: 'changes how much is logged, until the process ends',
      access: 'change',
      inputs: ['level'],
      run(input) {
        const given = input['level'] ?? '';
        if (given === '')
          throw new KpngError('KPNG_USAGE', 'level: expected a number from 0 to 10');
        const before = subject.log.verbosity;
        const now = numberOf(input, 'level', { min: 0, max: MAX_LOG_LEVEL, byDefault: before });
        subject.log.info('Changing how much is logged', { from: before, to: now });
        subject.log.setVerbosity(now);
        return level();
      },
    },
    {
      name: 'drain',
      summary: 'takes no new connections for a service, an endpoint, or at all; open ones go on',
      access: 'change',
      inputs: ['service', 'endpoint'],
      run: (input) => drain(subject, drainOf(input)),
    },
    {
      name: 'undrain',
      summary: 'takes a drain back; without a name, all of them',
      access: 'change',
      inputs: ['service', 'endpoint'],
      run: (input) => undrain(subject, drainOf(input)),
    },
  ];
}

function drainOf({ service = '', endpoint = '' }: OperationInput): Drain {
  if (endpoint === '') {
    return service === '' ? { kind: 'process' } : { kind: 'service', service };
  }
  const place = parseHostPort(endpoint);
  if (place === undefined || place.host === '' || place.port === 0) {
    throw new KpngError(
      'KPNG_USAGE',
      `endpoint ${JSON.stringify(endpoint)}: expected ip:port or [ip6]:port`,
    );
  }
  return { kind: 'endpoint', endpoint, ...(service !== '' && { service }) };
}

async function drain(subject: ProcessSubject, what: Drain): Promise<DrainOutcome> {
  const { engine } = proxyOf(subject);
  // Load balancers look elsewhere before anybody is refused.
  if (what.kind === 'process') subject.health.draining(true);
  const names = await engine.drain(what);
  const outcome = outcomeOf(subject, drainText(what), names);
  subject.log.info('Draining: no new connections', { ...outcome });
  return outcome;
}

/** Without a name, everything is as it was before the first drain. */
async function undrain(subject: ProcessSubject, what: Drain): Promise<DrainOutcome> {
  const { engine } = proxyOf(subject);
  const isAll = what.kind === 'process';
  const names = await engine.undrain(isAll ? undefined : what);
  if (isAll) subject.health.draining(false);
  const outcome = outcomeOf(subject, isAll ? 'all' : drainText(what), names);
  subject.log.info('Draining no longer', { ...outcome });
  return outcome;
}

function outcomeOf(subject: ProcessSubject, what: string, names: readonly string[]): DrainOutcome {
  const snapshots = proxyOf(subject).engine.snapshot(new Set(names));
  const active = snapshots.reduce((sum, { counters }) => sum + counters.active, 0);
  return { what, servicePorts: names.length, active };
}
