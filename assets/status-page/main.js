import { byId, el, setText } from './dom.js';
import { panel } from './details.js';
import { whole } from './format.js';
import { showHead, showProblems, showState, showTiles } from './head.js';
import { COLUMNS, fillRow, markSort, newHead, newRow } from './rows.js';

const EVERY_MS = 2000;
const PAGE = 100;

const FILTERS = [
  ['all', 'All', ({ total }) => total],
  ['traffic', 'In use', () => undefined],
  ['problems', 'Not ok', ({ total, states }) => total - states.ok],
  ['drained', 'Drained', ({ states }) => states.drained],
];

/** What is asked for; kept in the address, so that it can be sent to somebody. */
const view = {
  search: '',
  state: 'all',
  // On a phone there is room for a few only: the worst.
  sort: matchMedia('(max-width: 600px)').matches ? 'state' : 'name',
  reverse: false,
  offset: 0,
  open: '',
};
const table = document.querySelector('.scroll > table');
const body = table.tBodies[0];
const head = newHead(sortBy);
table.tHead.append(head);
/** Rows by the name of the service port. */
const rows = new Map();
let openRow;
let paused = false;
let timer;
let asked = 0;
let answeredAt;
let nodeName;

async function ask(operation, input = {}) {
  const response = await fetch(`v1/${operation}?${new URLSearchParams(input)}`, {
    signal: AbortSignal.timeout(10_000),
  });
  const answer = await response.json();
  if (response.ok) return answer;
  throw Object.assign(new Error(answer.error.message), { refused: response.status === 409 });
}

/** What may be gone or not there yet is undefined then. */
async function askMaybe(operation, input) {
  try {
    return await ask(operation, input);
  } catch (error) {
    if (error.refused) return undefined;
    throw error;
  }
}

async function refresh() {
  clearTimeout(timer);
  const turn = (asked += 1);
  try {
    const { open, reverse, ...query } = view;
    const [status, services, history, details, single] = await Promise.all([
      ask('status'),
      askMaybe('services', { ...query, order: reverse ? 'reverse' : 'normal', limit: PAGE }),
      ask('history'),
      open === '' ? undefined : askMaybe('service', { name: open }),
      open === '' ? undefined : askMaybe('history', { service: open }),
    ]);
    // A newer question may have been answered already.
    if (turn !== asked) return;
    answeredAt = Date.now();
    show(status, services, history, details?.services[0], single);
    lost();
  } catch (error) {
    if (turn !== asked) return;
    lost(error);
  }
  if (!paused && !document.hidden) timer = setTimeout(refresh, EVERY_MS);
}

function show(status, services, history, details, single) {
  showHead(status);
  const { proxy } = status;
  byId('tiles').hidden = proxy === null;
  byId('services').hidden = services === undefined;
  showProblems(status);
  nodeName = status.process.nodeName;
  if (proxy === null || services === undefined) return;
  showTiles(proxy, history);
  showFilters(services);
  showRows(services.rows);
  showDetails(details, single);
  const { offset, matched, rows: shown } = services;
  setText(
    byId('range'),
    matched === 0
      ? ''
      : `${whole(offset + 1)}–${whole(offset + shown.length)} of ${whole(matched)}`,
  );
  byId('previous').disabled = offset === 0;
  byId('next').disabled = offset + shown.length >= matched;
  byId('none').hidden = matched > 0;
  setText(
    byId('none'),
    services.total === 0 ? 'No service ports yet.' : 'No matching service port.',
  );
  markSort(head, view);
  const { open: _, offset: __, reverse, ...query } = view;
  const order = reverse ? 'reverse' : 'normal';
  byId('csv').href = `v1/services.csv?${new URLSearchParams({ ...query, order })}`;
  setText(byId('updated'), paused ? 'paused' : 'live, every 2 s');
}

function showFilters(services) {
  const box = byId('filters');
  if (box.childElementCount === 0) {
    box.append(
      ...FILTERS.map(([state, title]) =>
        el(
          'button',
          { type: 'button', onclick: () => change({ state, offset: 0 }) },
          title,
          el('b', {}),
        ),
      ),
    );
  }
  for (const [index, [state, , count]] of FILTERS.entries()) {
    const button = box.children[index];
    button.setAttribute('aria-pressed', String(view.state === state));
    const number = count(services);
    setText(button.lastChild, number === undefined ? '' : whole(number));
  }
}

/** Brings the rows into their order without touching what is in place, so that focus stays where it is. */
function showRows(services) {
  const names = new Set(services.map(({ name }) => name));
  for (const [name, row] of rows) {
    if (names.has(name)) continue;
    row.remove();
    rows.delete(name);
  }
  const focused = document.activeElement;
  let next = body.firstElementChild;
  for (const service of services) {
    if (next === openRow) next = next?.nextElementSibling ?? null;
    const row = rows.get(service.name) ?? newRow();
    rows.set(service.name, row);
    fillRow(row, service);
    if (row === next) next = row.nextElementSibling;
    else body.insertBefore(row, next);
  }
  if (focused !== document.activeElement && focused?.isConnected) focused.focus();
}

function showDetails(details, history) {
  for (const [name, row] of rows) {
    const button = row.querySelector('button');
    button.setAttribute('aria-expanded', String(name === view.open));
  }
  const row = rows.get(view.open);
  if (row === undefined || details === undefined || history === undefined) {
    openRow?.remove();
    openRow = undefined;
    return;
  }
  openRow ??= el('tr', { className: 'open' }, el('td', { colSpan: COLUMNS.length }));
  if (row.nextElementSibling !== openRow) row.after(openRow);
  // Not while somebody reads values off it or scrolls in it.
  const cell = openRow.cells[0];
  if (cell.dataset.name === view.open && cell.querySelector('svg:hover, .list:focus')) return;
  const scrolled = [...cell.querySelectorAll('.list')].map(({ scrollTop }) => scrollTop);
  const same = cell.dataset.name === view.open;
  cell.dataset.name = view.open;
  cell.replaceChildren(panel(details, history));
  if (!same) return;
  for (const [index, list] of cell.querySelectorAll('.list').entries()) {
    list.scrollTop = scrolled[index] ?? 0;
  }
}

function lost(error) {
  const notice = byId('lost');
  notice.hidden = error === undefined;
  document.body.classList.toggle('stale', error !== undefined);
  if (error === undefined) return;
  showState('down', nodeName);
  const since =
    answeredAt === undefined ? '' : ` since ${new Date(answeredAt).toLocaleTimeString()}`;
  setText(notice, `No answer from the proxy${since}: ${error.message}. Retrying every 2 s.`);
}

function sortBy(sort) {
  change({ sort, reverse: view.sort === sort && !view.reverse, offset: 0 });
}

function change(part) {
  Object.assign(view, part);
  const kept = Object.entries(view).filter(([name, value]) => value !== DEFAULTS[name]);
  const hash = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  history.replaceState(null, '', hash === '' ? location.pathname : `#${hash}`);
  void refresh();
}

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  Object.assign(view, DEFAULTS);
  for (const name of ['search', 'state', 'sort', 'open'])
    view[name] = given.get(name) ?? view[name];
  view.reverse = given.get('reverse') === 'true';
  view.offset = Math.max(0, Number(given.get('offset')) || 0);
  byId('search').value = view.search;
}

const DEFAULTS = { ...view };

byId('search').addEventListener('input', (event) => {
  change({ search: event.target.value, offset: 0 });
});
byId('previous').addEventListener('click', () => {
  change({ offset: Math.max(0, view.offset - PAGE) });
});
byId('next').addEventListener('click', () => change({ offset: view.offset + PAGE }));
byId('pause').addEventListener('click', (event) => {
  paused = !paused;
  event.target.setAttribute('aria-pressed', String(paused));
  setText(event.target, paused ? 'Resume' : 'Pause');
  setText(byId('updated'), paused ? 'paused' : '');
  clearTimeout(timer);
  if (!paused) void refresh();
});
body.addEventListener('click', (event) => {
  const row = event.target.closest('tr.row');
  if (row === null || String(getSelection()) !== '') return;
  const { name } = row.querySelector('button').dataset;
  change({ open: view.open === name ? '' : name });
});
document.addEventListener('keydown', (event) => {
  const typing = event.target instanceof HTMLInputElement;
  if (event.key === '/' && !typing) {
    event.preventDefault();
    byId('search').focus();
  } else if (event.key === 'Escape') {
    if (typing && view.search !== '') {
      byId('search').value = '';
      change({ search: '', offset: 0 });
    } else if (view.open !== '') {
      rows.get(view.open)?.querySelector('button').focus();
      change({ open: '' });
    }
  }
});
document.addEventListener('visibilitychange', () => {
  if (!document.hidden && !paused) void refresh();
});
window.addEventListener('hashchange', () => {
  readAddress();
  void refresh();
});
readAddress();
void refresh();
