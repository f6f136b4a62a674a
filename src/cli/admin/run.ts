import { callAdmin, type AdminCall } from '../../admin/client.ts';
import { MAX_ROWS } from '../../admin/services.ts';
import type { DrainOutcome, StopOutcome } from '../../admin/changing.ts';
import type {
  ConnectionsView,
  ServiceDetails,
  ServicesView,
  StatusView,
} from '../../admin/views.ts';
import { KpngError } from '../../errors.ts';
import { HEALTH_STATES, unreachable } from '../../observe/verdict.ts';
import type { OutputForm } from '../flags/admin.ts';
import type { Streams } from '../command.ts';
import { print } from './layout.ts';
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

export type AdminWord =
  | 'status'
  | 'services'
  | 'connections'
  | 'top'
  | 'drain'
  | 'undrain'
  | 'loglevel'
  | 'stop'
  | 'dump';

/** A parsed command for a running proxy. */
export interface AdminInvocation {
  readonly word: AdminWord;
  readonly operand: string | undefined;
  /** Path of the admin socket. */
  readonly socket: string;
  /** Values of the flags of the command. */
  readonly flags: Readonly<Record<string, unknown>>;
}

/** The output of a command and its exit code. */
interface Shown {
  readonly value: unknown;
  readonly lines: readonly string[];
  readonly code?: number;
}

type CallOperation = (
  method: AdminCall['method'],
  operation: string,
  input?: Record<string, string>,
) => Promise<unknown>;

/** Runs a command and returns the exit code. Rejects with a KpngError. */
export async function runAdmin(invocation: AdminInvocation, terminal: Streams): Promise<number> {
  const { word, socket, flags } = invocation;
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
    return runTop({
      flags,
      terminal,
      callProxy: (operation, input) => call('GET', operation, input),
    });
  }
  const { value, lines, code = 0 } = await show(invocation, call);
  await print(value, lines, flags['output'] as OutputForm, terminal.stdout);
  return code;
}

async function show(invocation: AdminInvocation, call: CallOperation): Promise<Shown> {
  const { word, operand = '', flags } = invocation;
  switch (word) {
    case 'status': {
      const value = (await call('GET', 'status').catch(noAnswer)) as StatusView | NoAnswer;
      return { value, lines: statusText(value), code: HEALTH_STATES.indexOf(value.health.state) };
    }
    case 'services': {
      if (operand === '') {
        const value = (await call('GET', 'services', listInput(flags))) as ServicesView;
        return { value, lines: servicesText(value) };
      }
      const value = (await call('GET', 'service', { name: operand })) as {
        services: ServiceDetails[];
      };
      return { value, lines: detailsText(value.services) };
    }
    case 'connections': {
      const input = { service: operand, limit: String(flags['limit']) };
      const value = (await call('GET', 'connections', input)) as ConnectionsView;
      return { value, lines: connectionsText(value) };
    }
    case 'drain':
    case 'undrain': {
      const input = { service: operand, endpoint: String(flags['endpoint']) };
      const value = (await call('POST', word, input)) as DrainOutcome;
      return { value, lines: (word === 'drain' ? drainedText : undrainedText)(value) };
    }
    case 'loglevel': {
      const value = (await (operand === ''
        ? call('GET', 'loglevel')
        : call('POST', 'loglevel', { level: operand }))) as { level: number };
      return { value, lines: [String(value.level)] };
    }
    case 'stop': {
      const value = (await call('POST', 'stop')) as StopOutcome;
      return { value, lines: stoppingText(value) };
    }
    case 'dump': {
      const value = await call('GET', 'dump');
      return { value, lines: [JSON.stringify(value)] };
    }
    case 'top':
      throw new Error('top prints its own output');
    default:
      return word satisfies never;
  }
}

/** The status of a proxy that does not answer: a verdict and nothing else. */
function noAnswer(error: unknown): NoAnswer {
  if (!(error instanceof KpngError) || error.code !== 'KPNG_ADMIN_UNREACHABLE') throw error;
  return { health: unreachable(error.message) };
}

/** The flags of a list, as inputs of the API. */
function listInput(flags: Readonly<Record<string, unknown>>): Record<string, string> {
  const text = (name: string): string => {
    const value = flags[name];
    return typeof value === 'string' ? value : '';
  };
  return {
    search: text('search'),
    state: text('state'),
    sort: text('sort'),
    order: flags['reverse'] === true ? 'reverse' : 'normal',
    limit: String(Math.min(Number(flags['limit'] ?? 100), MAX_ROWS)),
  };
}
