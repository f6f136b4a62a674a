import { SORT_KEYS } from '../../admin/services.ts';
import { SERVICE_STATES } from '../../observe/service-state.ts';
import type { Examples, OtherCommand } from '../command.ts';
import { GLOBAL_FLAGS } from '../flags/global.ts';
import { choice, duration, integer, text, toggle } from '../flags/kinds.ts';
import { atMost, usage } from '../flags/read.ts';
import { flag, group, pickValues, type FlagTable } from '../flags/table.ts';
import { OUTPUT_FORMS } from './layout.ts';
import type { AdminWord } from './run.ts';

/** Flags of every command that queries a running proxy. */
const CLIENT_FLAGS = group('Proxy', {
  socket: flag(text('path'), '', {
    help: 'Admin socket of the proxy, or its named pipe on Windows.',
    defaultText: 'that of --admin-socket',
  }),
});

/** The same, for commands with several output formats. */
export const SHOW_FLAGS = {
  ...CLIENT_FLAGS,
  ...group('Output', {
    output: flag(choice(OUTPUT_FORMS), 'table', {
      help: 'Output format. json and yaml contain the complete answer of the API.',
      short: 'o',
    }),
  }),
} as const;

const LIST_FLAGS = group('Output', {
  search: flag(text('words'), '', {
    help: 'Only service ports whose name or addresses contain all of these words.',
  }),
  state: flag(choice(['all', 'traffic', 'problems', ...SERVICE_STATES]), 'all', {
    help: 'Only service ports in use (traffic), not ok (problems), or in one state.',
  }),
  sort: flag(choice(SORT_KEYS), 'name', { help: 'Sort order: the largest first, names from A.' }),
  reverse: flag(toggle(), false, { help: 'Reverse the order.' }),
});

const LIMIT_FLAGS = group('Output', {
  limit: flag(integer(1, 10_000), 100, { help: 'Maximum number of rows.' }),
});

const ENDPOINT_FLAGS = group('Output', {
  endpoint: flag(text('ip:port'), '', {
    help: 'Only this endpoint, of the named service or of all services.',
  }),
});

interface AdminText {
  readonly word: AdminWord;
  readonly summary: string;
  readonly description: string;
  /** Arguments after the word, such as `[NAME]`; absent: none. */
  readonly operand?: string;
  readonly flags: FlagTable;
  readonly examples: Examples;
  /** Throws a usage error if operand and flags contradict each other. */
  readonly check?: (operand: string | undefined, flags: Flags) => void;
}

type Flags = Readonly<Record<string, unknown>>;

/** A command that queries a running proxy over its admin socket. */
function admin({ description, operand, check, ...command }: AdminText): OtherCommand {
  return {
    ...command,
    forRunningProxy: true,
    description: [description],
    forms: [operand === undefined ? '[flags]' : `${operand} [flags]`],
    readsSettings: true,
    bind({ operands, read }) {
      atMost(operand === undefined ? 0 : 1, operands, command.word);
      const raw = read();
      const flags: Flags = pickValues(command.flags, raw);
      check?.(operands[0], flags);
      // Without --socket: the process that this environment and configuration file would start.
      const socket = raw.has('socket')
        ? String(flags['socket'])
        : pickValues(GLOBAL_FLAGS, raw).adminSocket;
      return async (streams) => {
        const { runAdmin } = await import('./run.ts');
        return runAdmin(command.word, operands[0] ?? '', socket, flags, streams);
      };
    },
  };
}

/** A missing name, or an empty one in a script, must not drain the whole process. */
function checkDrain(service = '', { endpoint, all }: Flags): void {
  const isNamed = service !== '' || endpoint !== '';
  if (isNamed && all === true) {
    throw usage('drain: name a service or an endpoint, or use --all, not both');
  }
  if (isNamed || all === true) return;
  throw usage(
    'drain: nothing is named; name a service, an endpoint with --endpoint, or the whole process with --all',
  );
}

export const ADMIN_COMMANDS: readonly OtherCommand[] = (
  [
    {
      word: 'status',
      summary: 'Show the health, settings and totals of a running proxy',
      description:
        'Exit code 0: the proxy is ready; 1: it is degraded; 2: it is down, or does not answer. The reasons are listed.',
      flags: SHOW_FLAGS,
      examples: { status: 'shows the proxy of this host in a few lines' },
    },
    {
      word: 'services',
      summary: 'List service ports, or show one in detail',
      description:
        'Without a name, a line for each service port. With namespace/name[:port], its listeners, ' +
        'endpoints with their states, errors by cause and times.',
      operand: '[NAME]',
      flags: { ...SHOW_FLAGS, ...LIST_FLAGS, ...LIMIT_FLAGS },
      examples: {
        'services --state problems': 'lists service ports with problems',
        'services default/web:http': 'shows one service port in detail',
      },
    },
    {
      word: 'connections',
      summary: 'List open connections and UDP sessions',
      description: 'The oldest first. With namespace/name[:port], only those of one service.',
      operand: '[SERVICE]',
      flags: { ...SHOW_FLAGS, ...LIMIT_FLAGS },
      examples: { 'connections default/web --limit 20': 'shows who is connected' },
    },
    {
      word: 'top',
      summary: 'Watch service ports in the terminal',
      description:
        'A live table of rates, connections, errors and endpoints. Keys: q quits, c r i o e n s sort, ' +
        '/ searches, Enter shows endpoints, ? explains the rest.',
      flags: {
        ...CLIENT_FLAGS,
        ...LIST_FLAGS,
        sort: { ...LIST_FLAGS.sort, default: 'connections' },
        ...group('Output', {
          interval: flag(duration(500), 2000, {
            help: 'Refresh interval. The proxy updates its rates every two seconds.',
          }),
          once: flag(toggle(), false, {
            help: 'Print one screen as plain text and exit; the default without a terminal.',
          }),
        }),
      },
      examples: {
        top: 'shows the busiest services first',
        'top --once --sort errors': 'prints it once, for a script',
      },
    },
    {
      word: 'drain',
      summary: 'Stop accepting connections for a service, an endpoint, or the whole process',
      description:
        'Open connections continue. A service is namespace/name, or namespace/name:port for one of its ports. ' +
        'With --all the whole process drains, as after SIGTERM but without exiting: health and readiness ' +
        'answer 503 and new clients are refused, until undrain.',
      operand: '[SERVICE]',
      flags: {
        ...SHOW_FLAGS,
        ...ENDPOINT_FLAGS,
        ...group('Output', {
          all: flag(toggle(), false, { help: 'The whole process: every service and endpoint.' }),
        }),
      },
      examples: {
        'drain default/web': 'drains the connections of a service',
        'drain --endpoint 10.1.2.3:8080': 'stops sending clients to an endpoint',
        'drain --all': 'refuses all new clients, until undrain',
      },
      check: checkDrain,
    },
    {
      word: 'undrain',
      summary: 'Resume what was drained',
      description: 'Without a name, all of them.',
      operand: '[SERVICE]',
      flags: { ...SHOW_FLAGS, ...ENDPOINT_FLAGS },
      examples: { undrain: 'resumes everything' },
    },
    {
      word: 'loglevel',
      summary: 'Show or change the log level',
      description: 'LEVEL is a number as for -v. It stays in force until the process exits.',
      operand: '[LEVEL]',
      flags: SHOW_FLAGS,
      examples: { 'loglevel 4': 'logs the events of every connection' },
    },
    {
      word: 'stop',
      summary: 'Stop a running proxy gracefully',
      description:
        'Like SIGTERM: open connections have --drain-timeout to end. Returns at once. On Windows it stops a process ' +
        'that has no console and is not a service.',
      flags: SHOW_FLAGS,
      examples: { stop: 'drains connections and stops the proxy' },
    },
    {
      word: 'dump',
      summary: 'Print the whole state of a running proxy, for a bug report',
      description:
        'Contains addresses of services, endpoints and up to 100 clients; review it before you send it.',
      flags: {
        ...CLIENT_FLAGS,
        output: { ...SHOW_FLAGS.output, default: 'json' },
      },
      examples: { 'dump > dump.json': 'saves the state of the proxy' },
    },
  ] satisfies AdminText[]
).map(admin);
