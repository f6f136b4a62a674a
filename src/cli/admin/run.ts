import { callAdmin, type AdminCall } from '../../admin/client.ts';
import { MAX_ROWS } from '../../admin/services.ts';
import type {
  ConnectionsView,
  DrainOutcome,
  ServiceDetails,
  ServicesView,
  StatusView,
  StopOutcome,
} from '../../admin/views.ts';
import { KpngError } from '../../errors.ts';
import { HEALTH_STATES, unreachable } from '../../observe/verdict.ts';
import type { Streams } from '../command.ts';
import { print, type OutputForm } from './layout.ts';
import {
  type NoAnswer,
  connectionsText,
  detailsText,
  drainedText,
  servicesText,
  statusText,
  stoppingText,
  undrainedText,
} from './tables.ts';

export type AdminWord = keyof typeof SHOW | 'top';

type Flags = Readonly<Record<string, unknown>>;

type CallOperation = (
  method: AdminCall['method'],
  operation: string,
  input?: Record<string, string>,
) => Promise<unknown>;

/** Runs a command over the admin socket at a path, and returns the exit code. Rejects with a KpngError. */
export async function runAdmin(
  word: AdminWord,
  operand: string,
  socket: string,
  flags: Flags,
  terminal: Streams,
): Promise<number> {
  if (socket === '') {
    throw new KpngError(
      'KPNG_ADMIN_UNREACHABLE',
      'there is no default path of the admin socket here; name it with --socket',
    );
  }
  const call: CallOperation = (method, operation, input = {}) =>
    callAdmin({ socket, method, operation, input });
  if (word === 'top') {
    const { runTop } = await import('./top/run.ts');
    return runTop(flags, (operation, input) => call('GET', operation, input), terminal);
  }
  const show: Show = SHOW[word];
  const { value, lines, code = 0 } = await show(call, operand, flags);
  await print(value, lines, flags['output'] as OutputForm, terminal.stdout);
  return code;
}

/** Returns the output of a command and its exit code; absent: 0. */
type Show = (
  call: CallOperation,
  operand: string,
  flags: Flags,
) => Promise<{ value: unknown; lines: readonly string[]; code?: number }>;

const SHOW = {
  async status(call) {
    const value = (await call('GET', 'status').catch(noAnswer)) as StatusView | NoAnswer;
    return { value, lines: statusText(value), code: HEALTH_STATES.indexOf(value.health.state) };
  },
  async services(call, name, flags) {
    if (name === '') {
      const value = (await call('GET', 'services', listInput(flags))) as ServicesView;
      return { value, lines: servicesText(value) };
    }
    const value = (await call('GET', 'service', { name })) as { services: ServiceDetails[] };
    return { value, lines: detailsText(value.services) };
  },
  async connections(call, service, flags) {
    const input = { service, limit: String(flags['limit']) };
    const value = (await call('GET', 'connections', input)) as ConnectionsView;
    return { value, lines: connectionsText(value) };
  },
  drain: changing('drain', drainedText),
  undrain: changing('undrain', undrainedText),
  async loglevel(call, level) {
    const answer = level === '' ? call('GET', 'loglevel') : call('POST', 'loglevel', { level });
    const value = (await answer) as { level: number };
    return { value, lines: [String(value.level)] };
  },
  async stop(call) {
    const value = (await call('POST', 'stop')) as StopOutcome;
    return { value, lines: stoppingText(value) };
  },
  async dump(call) {
    const value = await call('GET', 'dump');
    return { value, lines: [JSON.stringify(value)] };
  },
} satisfies Record<string, Show>;

function changing(operation: string, linesOf: (outcome: DrainOutcome) => string[]): Show {
  return async (call, service, flags) => {
    const input = { service, endpoint: String(flags['endpoint']) };
    const value = (await call('POST', operation, input)) as DrainOutcome;
    return { value, lines: linesOf(value) };
  };
}

/** The status of a proxy that does not answer: a verdict and nothing else. */
function noAnswer(error: unknown): NoAnswer {
  if (!(error instanceof KpngError) || error.code !== 'KPNG_ADMIN_UNREACHABLE') throw error;
  return { health: unreachable(error.message) };
}

/** The flags of a list, as inputs of the API. */
function listInput({ search, state, sort, reverse, limit }: Flags): Record<string, string> {
  return {
    search: String(search),
    state: String(state),
    sort: String(sort),
    order: reverse === true ? 'reverse' : 'normal',
    limit: String(Math.min(Number(limit), MAX_ROWS)),
  };
}
