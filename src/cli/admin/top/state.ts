import type { ServicesQuery, ServicesView, SortKey } from '../../../admin/services.ts';
import type { ServiceDetails } from '../../../admin/details.ts';
import type { StatusView } from '../../../admin/standard.ts';
import { KpngError } from '../../../errors.ts';
import { noStates } from '../../../observe/service-state.ts';

/** The part of the state of `top` that the user controls. */
export interface TopState extends Pick<ServicesQuery, 'sort' | 'reverse' | 'state' | 'search'> {
  /** Whether keys go to the search. */
  readonly typing: boolean;
  /** Index of the selected row. */
  readonly selected: number;
  /** Service port whose endpoints are shown. */
  readonly open: string | undefined;
  readonly paused: boolean;
  readonly help: boolean;
}

/** The part of the screen that keys depend on: names of the rows, in order, and the number of rows that fit. */
type OnScreen = { readonly names: readonly string[]; readonly height: number };

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

const FILTERS: readonly TopState['state'][] = ['all', 'traffic', 'problems', 'drained'];
const MAX_SEARCH = 100;

export function initialState({
  sort = 'connections',
  reverse = false,
  state = 'all',
  search = '',
}: Partial<ServicesQuery>): TopState {
  const view = { typing: false, selected: 0, open: undefined, paused: false, help: false };
  return { sort, reverse, state, search, ...view };
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
  const next = { ...state, ...CHANGES[key]?.(state, screen) };
  return { ...next, selected: Math.max(0, Math.min(next.selected, screen.names.length - 1)) };
}

/** Whether a state needs other data than the one before. */
export function needsData(before: TopState, after: TopState): boolean {
  const keys = ['sort', 'reverse', 'state', 'search', 'open', 'paused'] as const;
  return keys.some((key) => before[key] !== after[key]);
}

type Change = (state: TopState, screen: OnScreen) => Partial<TopState>;

const toggleOpen: Change = ({ open, selected }, { names: { [selected]: name } }) => ({
  open: open === name ? undefined : name,
});
const showHelp: Change = () => ({ help: true });
const up: Change = ({ selected }) => ({ selected: selected - 1 });
const down: Change = ({ selected }) => ({ selected: selected + 1 });
const first: Change = () => ({ selected: 0 });
const last: Change = () => ({ selected: Infinity });

const CHANGES: Readonly<Record<string, Change>> = {
  '\r': toggleOpen,
  '\n': toggleOpen,
  '\u001b': () => ({ open: undefined, search: '', selected: 0 }),
  '/': () => ({ typing: true }),
  R: ({ reverse }) => ({ reverse: !reverse }),
  f: ({ state }) => ({ state: FILTERS[FILTERS.indexOf(state) + 1] ?? 'all', selected: 0 }),
  ' ': ({ paused }) => ({ paused: !paused }),
  '?': showHelp,
  h: showHelp,
  '\u001b[A': up,
  k: up,
  '\u001b[B': down,
  j: down,
  '\u001b[5~': ({ selected }, { height }) => ({ selected: selected - height }),
  '\u001b[6~': ({ selected }, { height }) => ({ selected: selected + height }),
  '\u001b[H': first,
  g: first,
  '\u001b[F': last,
  G: last,
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

/** Maximum number of service ports per request: more than any terminal has lines. */
const ROWS = '300';

export async function fetchTop(callProxy: CallProxy, top: TopState): Promise<TopData> {
  const { sort, reverse, state, search, open } = top;
  const order = reverse ? 'reverse' : 'normal';
  // A service port that is gone, or unknown to this process, is not an error.
  const orNothing = (error: unknown): undefined => {
    if (!(error instanceof KpngError) || error.code !== 'KPNG_ADMIN_REFUSED') throw error;
  };
  const [status, services, found] = await Promise.all([
    callProxy('status'),
    callProxy('services', { sort, order, state, search, limit: ROWS }).catch(orNothing),
    open === undefined ? undefined : callProxy('service', { name: open }).catch(orNothing),
  ]);
  const nothing = { total: 0, matched: 0, offset: 0, rows: [], states: noStates() };
  const details = found as { readonly services: readonly ServiceDetails[] } | undefined;
  return {
    status: status as StatusView,
    services: (services as ServicesView | undefined) ?? nothing,
    details: details?.services[0],
  };
}
