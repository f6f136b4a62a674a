import type { Example, OtherCommand } from '../command.ts';
import {
  ASK_FLAGS,
  ENDPOINT_FLAGS,
  LIMIT_FLAGS,
  LIST_FLAGS,
  SHOW_FLAGS,
  TOP_FLAGS,
} from '../flags/admin.ts';
import { GLOBAL_FLAGS } from '../flags/global.ts';
import { pickValues, type FlagTable } from '../flags/table.ts';
import { atMost } from '../topic.ts';
import type { AdminWord } from './run.ts';

interface AdminText {
  readonly word: AdminWord;
  readonly summary: string;
  readonly description: string;
  /** What may follow the word, such as `[NAME]`; absent: nothing. */
  readonly operand?: string;
  readonly flags: FlagTable;
  readonly examples: readonly Example[];
}

/** A command that asks a running proxy over its admin socket. */
function admin({ description, operand, ...text }: AdminText): OtherCommand {
  return {
    ...text,
    heading: 'A running proxy',
    description: [description],
    forms: [operand === undefined ? '[flags]' : `${operand} [flags]`],
    readsSettings: true,
    bind({ operands, read }) {
      atMost(operand === undefined ? 0 : 1, operands, text.word);
      const raw = read();
      const flags: Readonly<Record<string, unknown>> = pickValues(text.flags, raw);
      // Without --socket, the process that this environment and configuration file would start is meant.
      const socket = raw.given.has('socket')
        ? String(flags['socket'])
        : pickValues(GLOBAL_FLAGS, raw)['admin-socket'];
      return async (streams) => {
        const { runAdmin } = await import('./run.ts');
        return runAdmin({ word: text.word, operand: operands[0], socket, flags }, streams);
      };
    },
  };
}

export const ADMIN_COMMANDS: readonly OtherCommand[] = (
  [
    {
      word: 'status',
      summary: 'Show what a running proxy is, its health, and what it does',
      description:
        'Exit code 0 says that a proxy answered and is ready, 1 that none answered or that it is not.',
      flags: SHOW_FLAGS,
      examples: [{ line: 'status', does: 'says in a few lines how the proxy of this host is' }],
    },
    {
      word: 'services',
      summary: 'List its service ports, or tell everything about one',
      description:
        'Without a name, a line for each service port. With namespace/name[:port], its listeners, ' +
        'endpoints with their states, errors by cause and times.',
      operand: '[NAME]',
      flags: { ...SHOW_FLAGS, ...LIST_FLAGS, ...LIMIT_FLAGS },
      examples: [
        { line: 'services --state problems', does: 'lists what is not as it should be' },
        { line: 'services default/web:http', does: 'tells everything about one service port' },
      ],
    },
    {
      word: 'connections',
      summary: 'List open connections and UDP sessions',
      description:
        'The oldest first. A service, namespace/name[:port], shows only its own. Looking costs the proxy ' +
        'something only when it is asked.',
      operand: '[SERVICE]',
      flags: { ...SHOW_FLAGS, ...LIMIT_FLAGS },
      examples: [{ line: 'connections default/web --limit 20', does: 'shows who is connected' }],
    },
    {
      word: 'top',
      summary: 'Watch its service ports in the terminal',
      description:
        'A live table of rates, connections, errors and endpoints. Keys: q quits, c r i o e n s sort, ' +
        '/ searches, Enter shows endpoints, ? explains the rest.',
      flags: {
        ...ASK_FLAGS,
        ...LIST_FLAGS,
        sort: { ...LIST_FLAGS.sort, default: 'connections' },
        ...TOP_FLAGS,
      },
      examples: [
        { line: 'top', does: 'shows what is going on, the busiest service first' },
        { line: 'top --once --sort errors', does: 'prints it once, for a script' },
      ],
    },
    {
      word: 'drain',
      summary: 'Take no new connections for a service, an endpoint, or at all',
      description:
        'Connections that are open go on. A service is namespace/name, or namespace/name:port for one of ' +
        'its ports. Without a name the whole process drains, as after TERM but without ending: health and ' +
        'readiness answer 503, and new clients are refused, until undrain.',
      operand: '[SERVICE]',
      flags: { ...SHOW_FLAGS, ...ENDPOINT_FLAGS },
      examples: [
        { line: 'drain default/web', does: 'lets the connections of a service run out' },
        { line: 'drain --endpoint 10.1.2.3:8080', does: 'lets balancers skip an endpoint' },
      ],
    },
    {
      word: 'undrain',
      summary: 'Take drains back',
      description: 'Without a name, all of them.',
      operand: '[SERVICE]',
      flags: { ...SHOW_FLAGS, ...ENDPOINT_FLAGS },
      examples: [{ line: 'undrain', does: 'takes every drain back' }],
    },
    {
      word: 'loglevel',
      summary: 'Show or change how much is logged',
      description: 'LEVEL is a number as for -v. It holds until the process ends.',
      operand: '[LEVEL]',
      flags: SHOW_FLAGS,
      examples: [{ line: 'loglevel 4', does: 'logs what happens to every connection' }],
    },
    {
      word: 'stop',
      summary: 'End it in order',
      description:
        'As TERM does: connections that are open have --drain-timeout to end. Returns at once. On Windows, where no ' +
        'signal reaches a process that has no console, this is the way to end one that is no service.',
      flags: SHOW_FLAGS,
      examples: [{ line: 'stop', does: 'lets connections run out, and ends the proxy' }],
    },
    {
      word: 'dump',
      summary: 'Print everything that it knows, for a bug report',
      description:
        'It tells addresses of services, endpoints and up to 100 clients; look before you send it.',
      flags: {
        ...ASK_FLAGS,
        output: { ...SHOW_FLAGS.output, default: 'json' },
      },
      examples: [{ line: 'dump > dump.json', does: 'writes down what the proxy knows' }],
    },
  ] satisfies AdminText[]
).map(admin);
