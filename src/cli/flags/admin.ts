import { SERVICE_STATES } from '../../observe/service-state.ts';
import { SORT_KEYS } from '../../admin/services.ts';
import { choice, duration, integer, text, toggle } from './kinds.ts';
import { flag, group } from './table.ts';

const ASK = 'Proxy';
const WHAT = 'Output';

export const OUTPUT_FORMS = ['table', 'json', 'yaml'] as const;
export type OutputForm = (typeof OUTPUT_FORMS)[number];

/** Flags of every command that queries a running proxy. */
export const CLIENT_FLAGS = group(ASK, {
  socket: flag(text('path'), '', {
    help: 'Admin socket of the proxy, or its named pipe on Windows.',
    defaultText: 'that of --admin-socket',
  }),
});

/** The same, for commands with several output formats. */
export const SHOW_FLAGS = {
  ...CLIENT_FLAGS,
  ...group(WHAT, {
    output: flag(choice(OUTPUT_FORMS), 'table', {
      help: 'Output format. json and yaml contain the complete answer of the API.',
      short: 'o',
    }),
  }),
} as const;

export const LIST_FLAGS = group(WHAT, {
  search: flag(text('words'), '', {
    help: 'Only service ports whose name or addresses contain all of these words.',
  }),
  state: flag(choice(['all', 'traffic', 'problems', ...SERVICE_STATES]), 'all', {
    help: 'Only service ports in use (traffic), not ok (problems), or in one state.',
  }),
  sort: flag(choice(SORT_KEYS), 'name', { help: 'Sort order: the largest first, names from A.' }),
  reverse: flag(toggle(), false, { help: 'Reverse the order.' }),
});

export const LIMIT_FLAGS = group(WHAT, {
  limit: flag(integer(1, 10_000), 100, { help: 'Maximum number of rows.' }),
});

export const ENDPOINT_FLAGS = group(WHAT, {
  endpoint: flag(text('ip:port'), '', {
    help: 'Only this endpoint, of the named service or of all services.',
  }),
});

export const DRAIN_FLAGS = {
  ...ENDPOINT_FLAGS,
  ...group(WHAT, {
    all: flag(toggle(), false, { help: 'The whole process: every service and endpoint.' }),
  }),
} as const;

export const TOP_FLAGS = group(WHAT, {
  interval: flag(duration(500), 2000, {
    help: 'Refresh interval. The proxy updates its rates every two seconds.',
  }),
  once: flag(toggle(), false, {
    help: 'Print one screen as plain text and exit; the default without a terminal.',
  }),
});
