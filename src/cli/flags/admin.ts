import { SERVICE_STATES } from '../../admin/service-state.ts';
import { SORT_KEYS, type ServicesQuery, type SortKey } from '../../admin/services.ts';
import { choice, duration, integer, text, toggle } from './kinds.ts';
import { flag } from './table.ts';

const ASK = 'Whom to ask';
const WHAT = 'What to show';

export const OUTPUT_FORMS = ['table', 'json', 'yaml'] as const;
export type OutputForm = (typeof OUTPUT_FORMS)[number];

/** Flags of every command that asks a running proxy. */
export const ASK_FLAGS = {
  socket: flag<string>({
    kind: text('path'),
    default: '',
    defaultText: 'that of --admin-socket',
    help: 'Admin socket of the proxy, or its named pipe on Windows.',
    group: ASK,
  }),
} as const;

/** The same, where the answer can be printed in other forms. */
export const SHOW_FLAGS = {
  ...ASK_FLAGS,
  output: flag<OutputForm>({
    kind: choice(OUTPUT_FORMS),
    default: 'table',
    help: 'Form of the answer. json and yaml have everything that the API tells.',
    group: WHAT,
    short: 'o',
  }),
} as const;

/** Flags of lists of service ports. */
export const LIST_FLAGS = {
  search: flag<string>({
    kind: text('words'),
    default: '',
    help: 'Only service ports whose name or addresses contain each of these words.',
    group: WHAT,
  }),
  state: flag<ServicesQuery['state']>({
    kind: choice(['all', 'traffic', 'problems', ...SERVICE_STATES]),
    default: 'all',
    help: 'Only those in use now (traffic), those that are not ok (problems), or those of one state.',
    group: WHAT,
  }),
  sort: flag<SortKey>({
    kind: choice(SORT_KEYS),
    default: 'name',
    help: 'What to sort by: the largest first, names from A.',
    group: WHAT,
  }),
  reverse: flag<boolean>({
    kind: toggle(),
    default: false,
    help: 'Sort the other way round.',
    group: WHAT,
  }),
} as const;

export const LIMIT_FLAG = flag<number>({
  kind: integer(1, 10_000),
  default: 100,
  help: 'How many to show at most.',
  group: WHAT,
});

export const ENDPOINT_FLAG = flag<string>({
  kind: text('ip:port'),
  default: '',
  help: 'Only this endpoint: of the service that is named, or of every service.',
  group: WHAT,
});

export const TOP_FLAGS = {
  interval: flag<number>({
    kind: duration(500),
    default: 2000,
    help: 'How often the numbers are asked for. The proxy itself counts every two seconds.',
    group: WHAT,
  }),
  once: flag<boolean>({
    kind: toggle(),
    default: false,
    help: 'Print one screen as plain text and end, as it is done where there is no terminal.',
    group: WHAT,
  }),
} as const;
