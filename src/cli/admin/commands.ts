import { MAX_ROWS, SORT_KEYS } from '../../admin/services.ts';
import { SERVICE_STATES } from '../../observe/service-state.ts';
import { type CommandText, examples, type OtherCommand, paragraphs } from '../command.ts';
import { GLOBAL_FLAGS } from '../flags/global.ts';
import { choice, duration, integer, text, toggle } from '../flags/kinds.ts';
import { flag, group, atMost, usage } from '../flags/table.ts';
import { OUTPUT_FORMS } from './layout.ts';
import type { AdminRequest } from './run.ts';

/** Flags of every command that queries a running proxy. */
const CLIENT_FLAGS = group('Proxy', {
  socket: flag<string | undefined>(text('path'), undefined, {
    defaultText: 'that of --admin-socket',
  })`
    Admin socket of the proxy, or its named pipe on Windows.`,
});

/** The same, for commands with several output formats. */
export const SHOW_FLAGS = {
  ...CLIENT_FLAGS,
  ...group('Output', {
    output: flag(choice(OUTPUT_FORMS), 'table', { short: 'o' })`
      Output format. json and yaml contain the complete answer of the API.`,
  }),
} as const;

const LIST_FLAGS = group('Output', {
  search: flag(text('words'), '')`
    Only service ports whose name or addresses contain all of these words.`,
  state: flag(choice(['all', 'traffic', 'problems', ...SERVICE_STATES]), 'all')`
    Only service ports in use (traffic), not ok (problems), or in one state.`,
  sort: flag(choice(SORT_KEYS), 'name')`Sort order: the largest first, names from A.`,
  reverse: flag(toggle, false)`Reverse the order.`,
});

const LIMIT_FLAGS = group('Output', {
  limit: flag(integer(1, 10_000), 100)`Maximum number of rows.`,
});

const ENDPOINT_FLAGS = group('Output', {
  endpoint: flag(text('ip:port'), '')`Only this endpoint, of the named service or of all services.`,
});

type Flags = Readonly<Record<string, unknown>>;

interface AdminText extends CommandText {
  /** Arguments after the word, such as `[NAME]`; absent: none. */
  readonly operand?: string;
  /** Throws a usage error if operand and flags contradict each other. Default operation: named like the command. */
  readonly request?: (operand: string, flags: Flags) => Partial<AdminRequest>;
}

/** A command that queries a running proxy over its admin socket. */
function admin({ operand, request, ...command }: AdminText): OtherCommand {
  const { word, flags: table } = command;
  return {
    ...command,
    forRunningProxy: true,
    forms: [operand === undefined ? '[flags]' : `${operand} [flags]`],
    readsSettings: true,
    bind({ operands, read }) {
      atMost(operand === undefined ? 0 : 1, operands, word);
      const flags = read({ ...GLOBAL_FLAGS, ...CLIENT_FLAGS, ...table });
      const asked = { operation: word, ...request?.(operands[0] ?? '', flags) };
      // Without --socket: the process that this environment and configuration file would start.
      const { socket = flags.adminSocket } = flags;
      return async (streams) => (await import('./run.ts')).runAdmin(asked, socket, flags, streams);
    },
  };
}

/** The request of `drain` or `undrain`; the latter has no --all. */
function changeRequest(service: string, { endpoint, all }: Flags): Partial<AdminRequest> {
  const isNamed = service !== '' || endpoint !== '';
  if (isNamed && all === true) {
    throw usage('drain: name a service or an endpoint, or use --all, not both');
  }
  // A missing name, or an empty one in a script, must not drain the whole process.
  if (!isNamed && all === false) {
    throw usage(
      'drain: nothing is named; name a service, an endpoint with --endpoint, or the whole process with --all',
    );
  }
  const input = { ...(service !== '' && { service }), ...(endpoint !== '' && { endpoint }) };
  return { input, method: 'POST' };
}

export const ADMIN_COMMANDS: readonly OtherCommand[] = (
  [
    {
      word: 'status',
      summary: 'Show the health, settings and totals of a running proxy',
      description: paragraphs`
        Exit code 0: the proxy is ready; 1: it is degraded; 2: it is down, or does not answer. The reasons are
        listed.`,
      flags: SHOW_FLAGS,
      examples: examples`status # shows the proxy of this host in a few lines`,
    },
    {
      word: 'services',
      summary: 'List service ports, or show one in detail',
      description: paragraphs`
        Without a name, a line for each service port. With namespace/name[:port], its listeners, endpoints with
        their states, errors by cause and times.`,
      operand: '[NAME]',
      flags: { ...SHOW_FLAGS, ...LIST_FLAGS, ...LIMIT_FLAGS },
      examples: examples`
        services --state problems # lists service ports with problems
        services default/web:http # shows one service port in detail`,
      request: (name, { search, state, sort, reverse, limit }) => {
        if (name !== '') return { operation: 'service', input: { name } };
        const order = reverse === true ? 'reverse' : 'normal';
        return { input: { search, state, sort, order, limit: Math.min(Number(limit), MAX_ROWS) } };
      },
    },
    {
      word: 'connections',
      summary: 'List open connections and UDP sessions',
      description: paragraphs`The oldest first. With namespace/name[:port], only those of one service.`,
      operand: '[SERVICE]',
      flags: { ...SHOW_FLAGS, ...LIMIT_FLAGS },
      examples: examples`connections default/web --limit 20 # shows who is connected`,
      request: (service, { limit }) => ({ input: { service, limit } }),
    },
    {
      word: 'top',
      summary: 'Watch service ports in the terminal',
      description: paragraphs`
        A live table of rates, connections, errors and endpoints. Keys: q quits, c r i o e n s sort, / searches,
        Enter shows endpoints, ? explains the rest.`,
      flags: {
        ...CLIENT_FLAGS,
        ...LIST_FLAGS,
        sort: { ...LIST_FLAGS.sort, default: 'connections' },
        ...group('Output', {
          interval: flag(duration(500), 2000)`
            Refresh interval. The proxy updates its rates every two seconds.`,
          once: flag(toggle, false)`
            Print one screen as plain text and exit; the default without a terminal.`,
        }),
      },
      examples: examples`
        top # shows the busiest services first
        top --once --sort errors # prints it once, for a script`,
    },
    {
      word: 'drain',
      summary: 'Stop accepting connections for a service, an endpoint, or the whole process',
      description: paragraphs`
        Open connections continue. A service is namespace/name, or namespace/name:port for one of its ports.
        With --all the whole process drains, as after SIGTERM but without exiting: health and readiness answer
        503 and new clients are refused, until undrain.`,
      operand: '[SERVICE]',
      flags: {
        ...SHOW_FLAGS,
        ...ENDPOINT_FLAGS,
        ...group('Output', {
          all: flag(toggle, false)`The whole process: every service and endpoint.`,
        }),
      },
      examples: examples`
        drain default/web # drains the connections of a service
        drain --endpoint 10.1.2.3:8080 # stops sending clients to an endpoint
        drain --all # refuses all new clients, until undrain`,
      request: changeRequest,
    },
    {
      word: 'undrain',
      summary: 'Resume what was drained',
      description: paragraphs`Without a name, all of them.`,
      operand: '[SERVICE]',
      flags: { ...SHOW_FLAGS, ...ENDPOINT_FLAGS },
      examples: examples`undrain # resumes everything`,
      request: changeRequest,
    },
    {
      word: 'loglevel',
      summary: 'Show or change the log level',
      description: paragraphs`LEVEL is a number as for -v. It stays in force until the process exits.`,
      operand: '[LEVEL]',
      flags: SHOW_FLAGS,
      examples: examples`loglevel 4 # logs the events of every connection`,
      request: (level) => (level === '' ? {} : { input: { level }, method: 'POST' }),
    },
    {
      word: 'stop',
      summary: 'Stop a running proxy gracefully',
      description: paragraphs`
        Like SIGTERM: open connections have --drain-timeout to end. Returns at once. On Windows it stops a
        process that has no console and is not a service.`,
      flags: SHOW_FLAGS,
      examples: examples`stop # drains connections and stops the proxy`,
      request: () => ({ method: 'POST' }),
    },
    {
      word: 'dump',
      summary: 'Print the whole state of a running proxy, for a bug report',
      description: paragraphs`
        Contains addresses of services, endpoints and up to 100 clients; review it before you send it.`,
      flags: {
        ...CLIENT_FLAGS,
        output: { ...SHOW_FLAGS.output, default: 'json' },
      },
      examples: examples`dump > dump.json # saves the state of the proxy`,
    },
  ] satisfies AdminText[]
).map(admin);
