import { SORT_KEYS, type ServicesQuery, type SortKey } from '../../../admin/services.ts';
import type { ServiceDetails, ServicesView, StatusView } from '../../../admin/views.ts';
import { KpngError } from '../../../errors.ts';

/** The part of the state of `top` that the user controls. */
export interface TopState {
  readonly sort: SortKey;
  readonly reverse: boolean;
  readonly filter: ServicesQuery['state'];
  readonly search: string;
  /** Whether keys go to the search. */
  readonly typing: boolean;
  /** Index of the selected row. */
  readonly selected: number;
  /** Service port whose endpoints are shown. */
  readonly open: string | undefined;
  readonly paused: boolean;
  readonly help: boolean;
}

/** The part of the screen that keys depend on. */
export interface OnScreen {
  /** Names of the rows, in order. */
  readonly names: readonly string[];
  /** Rows that fit. */
  readonly height: number;
}

export type KeyOutcome =
  | { readonly kind: 'quit' }
  /** `refetch`: needs new data from the proxy. */
  | { readonly kind: 'state'; readonly state: TopState; readonly refetch: boolean };

/** Sort keys. */
export const SORT_KEY_OF: Readonly<Record<string, SortKey>> = {
  n: 'name',
  s: 'state',
  p: 'endpoints',
  c: 'active',
  r: 'connections',
  i: 'in',
  o: 'out',
  e: 'errors',
};

const FILTERS = ['all', 'traffic', 'problems', 'drained'] as const;
const MAX_SEARCH = 100;

export function initialState(flags: Readonly<Record<string, unknown>>): TopState {
  const sort = SORT_KEYS.find((key) => key === flags['sort']) ?? 'connections';
  return {
    sort,
    reverse: flags['reverse'] === true,
    filter: (flags['state'] as TopState['filter'] | undefined) ?? 'all',
    search: typeof flags['search'] === 'string' ? flags['search'] : '',
    typing: false,
    selected: 0,
    open: undefined,
    paused: false,
    help: false,
  };
}

/** Applies a key. `key`: the text that the terminal sends. */
export function onKey(state: TopState, key: string, screen: OnScreen): KeyOutcome {
  if (key === '\u0003') return { kind: 'quit' };
  if (state.typing) return onSearchKey(state, key);
  if (key === 'q' || key === '\u0004') return { kind: 'quit' };
  if (state.help) return shown({ ...state, help: false });
  const sort = SORT_KEY_OF[key];
  if (sort !== undefined) {
    const reverse = sort === state.sort && !state.reverse;
    return refetch({ ...state, sort, reverse, selected: 0 });
  }
  const move = MOVES[key]?.(state.selected, screen);
  if (move !== undefined) {
    const last = Math.max(screen.names.length - 1, 0);
    return shown({ ...state, selected: Math.min(Math.max(move, 0), last) });
  }
  const change = CHANGES[key]?.(state, screen.names[state.selected]) ?? {};
  const isLocal = Object.keys(change).every((each) => each === 'typing' || each === 'help');
  return { kind: 'state', state: { ...state, ...change }, refetch: !isLocal };
}

type Change = (state: TopState, name: string | undefined) => Partial<TopState>;

const toggleOpen: Change = ({ open }, name) => ({ open: open === name ? undefined : name });

const CHANGES: Readonly<Record<string, Change>> = {
  '\r': toggleOpen,
  '\n': toggleOpen,
  '\u001b': () => ({ open: undefined, search: '', selected: 0 }),
  '/': () => ({ typing: true }),
  R: ({ reverse }) => ({ reverse: !reverse }),
  f({ filter }) {
    const next = (FILTERS.findIndex((each) => each === filter) + 1) % FILTERS.length;
    return { filter: FILTERS[next] ?? 'all', selected: 0 };
  },
  ' ': ({ paused }) => ({ paused: !paused }),
  '?': () => ({ help: true }),
  h: () => ({ help: true }),
};

const MOVES: Readonly<Record<string, (selected: number, screen: OnScreen) => number>> = {
  '\u001b[A': (selected) => selected - 1,
  k: (selected) => selected - 1,
  '\u001b[B': (selected) => selected + 1,
  j: (selected) => selected + 1,
  '\u001b[5~': (selected, { height }) => selected - height,
  '\u001b[6~': (selected, { height }) => selected + height,
  '\u001b[H': () => 0,
  g: () => 0,
  '\u001b[F': (_, { names }) => names.length - 1,
  G: (_, { names }) => names.length - 1,
};

function onSearchKey(state: TopState, key: string): KeyOutcome {
  if (key === '\r' || key === '\n') return shown({ ...state, typing: false });
  if (key === '\u001b') return refetch({ ...state, typing: false, search: '', selected: 0 });
  const isErase = key === '\u007f' || key === '\b';
  const printable = key.startsWith('\u001b') ? '' : key.replace(/\p{Cc}/gu, '');
  const typed = isErase ? state.search.slice(0, -1) : state.search + printable;
  return refetch({ ...state, search: typed.slice(0, MAX_SEARCH), selected: 0 });
}

function shown(state: TopState): KeyOutcome {
  return { kind: 'state', state, refetch: false };
}

function refetch(state: TopState): KeyOutcome {
  return { kind: 'state', state, refetch: true };
}

/** Splits a terminal's input into keys: a letter, or a whole escape sequence. */
export function splitKeys(input: string): string[] {
  // oxlint-disable-next-line no-control-regex
  return input.match(/\u001b\[[\d;]*[A-Za-z~]|\u001bO[A-Z]|[^]/gu) ?? [];
}

/** The content of a screen of `top`. */
export interface TopData {
  readonly status: StatusView;
  readonly services: ServicesView;
  /** The open service port, if there is one. */
  readonly details: ServiceDetails | undefined;
}

/** Queries the running proxy: an operation and its input. */
export type CallProxy = (operation: string, input?: Record<string, string>) => Promise<unknown>;

const NOTHING: ServicesView = {
  total: 0,
  matched: 0,
  offset: 0,
  rows: [],
  states: { ok: 0, degraded: 0, down: 0, 'no-endpoints': 0, drained: 0, removed: 0 },
};

/** Maximum number of service ports per request: more than any terminal has lines. */
const ROWS = '300';

export async function fetchTop(callProxy: CallProxy, state: TopState): Promise<TopData> {
  const { sort, reverse, filter, search, open } = state;
  const order = reverse ? 'reverse' : 'normal';
  const input = { sort, order, state: filter, search, limit: ROWS };
  const [status, services, details] = await Promise.all([
    callProxy('status'),
    orUndefined(callProxy('services', input)),
    open === undefined ? undefined : orUndefined(callProxy('service', { name: open })),
  ]);
  return {
    status: status as StatusView,
    services: (services as ServicesView | undefined) ?? NOTHING,
    details: (details as { services: ServiceDetails[] } | undefined)?.services[0],
  };
}

/** A service port that is gone, or unknown to this process, is not an error. */
async function orUndefined(answer: Promise<unknown>): Promise<unknown> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof KpngError && error.code === 'KPNG_ADMIN_REFUSED') return undefined;
    throw error;
  }
}
