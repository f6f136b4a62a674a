import { SERVICE_STATES } from '../../admin/service-state.ts';
import { SORT_KEYS } from '../../admin/services.ts';
import { choice, duration, integer, text, toggle } from './kinds.ts';
import { flag, group } from './table.ts';

const ASK = 'Whom to ask';
const WHAT = 'What to show';

export const OUTPUT_FORMS = ['table', 'json', 'yaml'] as const;
export type OutputForm = (typeof OUTPUT_FORMS)[number];

/** Flags of every command that asks a running proxy. */
export const ASK_FLAGS = group(ASK, {
  socket: flag(text('path'), '', 'Admin socket of the proxy, or its named pipe on Windows.', {
    defaultText: 'that of --admin-socket',
  }),
});

/** The same, where the answer can be printed in other forms. */
export const SHOW_FLAGS = {
  ...ASK_FLAGS,
  ...group(WHAT, {
    output: flag(
      choice(OUTPUT_FORMS),
      'table',
      'Form of the answer. json and yaml have everything that the API tells.',
      { short: 'o' },
    ),
  }),
} as const;

/** Flags of lists of service ports. */
export const LIST_FLAGS = group(WHAT, {
  search: flag(
    text('words'),
    '',
    'Only service ports whose name or addresses contain each of these words.',
  ),
  state: flag(
    choice(['all', 'traffic', 'problems', ...SERVICE_STATES]),
    'all',
    'Only those in use now (traffic), those that are not ok (problems), or those of one state.',
  ),
  sort: flag(choice(SORT_KEYS), 'name', 'What to sort by: the largest first, names from A.'),
  reverse: flag(toggle(), false, 'Sort the other way round.'),
});

export const LIMIT_FLAGS = group(WHAT, {
  limit: flag(integer(1, 10_000), 100, 'How many to show at most.'),
});

export const ENDPOINT_FLAGS = group(WHAT, {
  endpoint: flag(
    text('ip:port'),
    '',
    'Only this endpoint: of the service that is named, or of every service.',
  ),
});

export const TOP_FLAGS = group(WHAT, {
  interval: flag(
    duration(500),
    2000,
    'How often the numbers are asked for. The proxy itself counts every two seconds.',
  ),
  once: flag(
    toggle(),
    false,
    'Print one screen as plain text and end, as it is done where there is no terminal.',
  ),
});
