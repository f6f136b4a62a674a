import {
  SORT_KEYS,
  type ServicesQuery,
  type ServicesView,
  type SortKey,
} from '../../../admin/services.ts';
import type { ServiceDetails } from '../../../admin/details.ts';
import type { StatusView } from '../../../admin/standard.ts';
import { KpngError } from '../../../errors.ts';
import { noStates } from '../../../observe/service-state.ts';

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
interface OnScreen {
  /** Names of the rows, in order. */
  readonly names: readonly string[];
  /** Rows that fit. */
  readonly height: number;
}

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

const FILTERS: readonly TopState['filter'][] = ['all', 'traffic', 'problems', 'drained'];
const MAX_SEARCH = 100;

export function initialState(flags: Readonly<Record<string, unknown>>): TopState {
  return {
    sort: SORT_KEYS.find((key) => key === flags['sort']) ?? 'connections',
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

/** Applies a key, which is the text that the terminal sends. Undefined: quit. */
export function onKey(state: TopState, key: string, screen: OnScreen): TopState | undefined {
  const isQuit = key === '\u0003' || (!state.typing && (key === 'q' || key === '\u0004'));
  if (isQuit) return undefined;
  if (state.typing) return { ...state, ...typed(state, key) };
  if (state.help) return { ...state, help: false };
  const sort = SORT_KEY_OF[key];
  if (sort !== undefined) {
    return { ...state, sort, reverse: sort === state.sort && !state.reverse, selected: 0 };
  }
  const move = MOVES[key]?.(state.selected, screen);
  if (move === undefined) return { ...state, ...CHANGES[key]?.(state, screen.names) };
  return { ...state, selected: Math.max(0, Math.min(move, screen.names.length - 1)) };
}

/** Whether a state needs other data than the one before. */
export function needsData(before: TopState, after: TopState): boolean {
  const keys = ['sort', 'reverse', 'filter', 'search', 'open', 'paused'] as const;
  return keys.some((key) => before[key] !== after[key]);
}

type Change = (state: TopState, names: readonly string[]) => Partial<TopState>;

const toggleOpen: Change = ({ open, selected }, { [selected]: name }) => ({
  open: open === name ? undefined : name,
});
const showHelp: Change = () => ({ help: true });

const CHANGES: Readonly<Record<string, Change>> = {
  '\r': toggleOpen,
  '\n': toggleOpen,
  '\u001b': () => ({ open: undefined, search: '', selected: 0 }),
  '/': () => ({ typing: true }),
  R: ({ reverse }) => ({ reverse: !reverse }),
  f: ({ filter }) => ({ filter: FILTERS[FILTERS.indexOf(filter) + 1] ?? 'all', selected: 0 }),
  ' ': ({ paused }) => ({ paused: !paused }),
  '?': showHelp,
  h: showHelp,
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

/** Applies a key to the search. */
function typed({ search }: TopState, key: string): Partial<TopState> {
  if (key === '\r' || key === '\n') return { typing: false };
  if (key === '\u001b') return { typing: false, search: '', selected: 0 };
  const isErase = key === '\u007f' || key === '\b';
  const printable = key.startsWith('\u001b') ? '' : key.replace(/\p{Cc}/gu, '');
  const text = isErase ? search.slice(0, -1) : search + printable;
  return { search: text.slice(0, MAX_SEARCH), selected: 0 };
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

const NOTHING: ServicesView = { total: 0, matched: 0, offset: 0, rows: [], states: noStates() };

/** Maximum number of service ports per request: more than any terminal has lines. */
const ROWS = '300';

export async function fetchTop(callProxy: CallProxy, state: TopState): Promise<TopData> {
  const { sort, reverse, filter, search, open } = state;
  const order = reverse ? 'reverse' : 'normal';
  const input = { sort, order, state: filter, search, limit: ROWS };
  // A service port that is gone, or unknown to this process, is not an error.
  const orNothing = (error: unknown): undefined => {
    if (!(error instanceof KpngError) || error.code !== 'KPNG_ADMIN_REFUSED') throw error;
  };
  const [status, services, details] = await Promise.all([
    callProxy('status') as Promise<StatusView>,
    callProxy('services', input).catch(orNothing) as Promise<ServicesView | undefined>,
    open === undefined
      ? undefined
      : (callProxy('service', { name: open }).catch(orNothing) as Promise<
          { services: ServiceDetails[] } | undefined
        >),
  ]);
  return { status, services: services ?? NOTHING, details: details?.services[0] };
}
