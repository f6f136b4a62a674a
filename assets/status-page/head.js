import { byId, el, setText } from './dom.js';
import { age, bytes, count, whole } from './format.js';
import { spark } from './plot.js';

const STATE_CLASSES = { ready: 'ok', degraded: 'warn', down: 'bad' };

/** Names of states in the order of the bar. */
export const STATES = ['ok', 'degraded', 'no-endpoints', 'down', 'drained', 'removed'];

/** Samples of a full history. */
export const SAMPLES = 150;

/** Writes who it is and how it is. */
export function showHead(status) {
  const { process: about, proxy, health, source } = status;
  showState(health.state, about.nodeName);
  const parts = [
    about.nodeName === null ? undefined : `node ${about.nodeName}`,
    about.command,
    source === null ? undefined : sourceText(source),
    proxy === null ? undefined : `engine ${proxy.engine}`,
    proxy === null ? undefined : `portal ${proxy.portal}`,
    `version ${about.version}`,
    `process ${about.pid}`,
    `up ${age(about.uptimeSeconds)}`,
    `${bytes(about.rssBytes)} memory`,
  ];
  setText(byId('about'), parts.filter(Boolean).join(' · '));
}

/** Writes the state of the proxy: `ready`, `degraded` or `down`. */
export function showState(state, nodeName) {
  const pill = byId('state');
  setText(pill, state);
  pill.className = `pill ${STATE_CLASSES[state]}`;
  const name = nodeName ?? 'kpng-userspace';
  document.title = state === 'ready' ? name : `${state}: ${name}`;
}

function sourceText({ name, connected, syncAgeSeconds }) {
  const sync = syncAgeSeconds === null ? 'no state yet' : `last change ${age(syncAgeSeconds)} ago`;
  return `${name}${connected ? '' : ' (unreachable or invalid)'}, ${sync}`;
}

/** Writes what all service ports come to. */
export function showTiles(proxy, history) {
  const { active, rates, totals, states, limits } = proxy;
  const [connections] = limits;
  const now = active.tcp + active.udp;
  const held = active.held > 0 ? ` · ${whole(active.held)} held` : '';
  byId('tiles').replaceChildren(
    tile(
      'Active',
      'Active',
      count(now),
      `${whole(active.tcp)} TCP of ${count(connections.max)} · ${whole(active.udp)} UDP${held}`,
      plot(history.active, 'c-main', 'active connections'),
    ),
    tile(
      'New connections',
      'New/s',
      count(rates.connections),
      `${count(totals.connections)} total`,
      plot(history.connections, 'c-main', 'new connections a second'),
    ),
    tile(
      'From clients',
      'In/s',
      bytes(rates.bytesIn),
      `${bytes(totals.bytesIn)} total`,
      plot(history.bytesIn, 'c-in', 'bytes a second from clients'),
    ),
    tile(
      'To clients',
      'Out/s',
      bytes(rates.bytesOut),
      `${bytes(totals.bytesOut)} total`,
      plot(history.bytesOut, 'c-out', 'bytes a second to clients'),
    ),
    tile(
      'Errors',
      'Errors/s',
      count(rates.errors),
      `${count(totals.errors)} total`,
      plot(history.errors, 'c-bad', 'errors a second'),
    ),
    tile(
      'Service ports',
      'Services',
      whole(proxy.servicePorts),
      `${whole(proxy.endpoints)} endpoints · ${whole(proxy.listeners.open)} listeners`,
      stack(states),
    ),
  );
}

/** `short`: the title where there is little room; it has the unit of a rate. */
function tile(title, short, value, more, picture) {
  const unit = short.endsWith('/s') ? el('span', {}, '/s') : undefined;
  return el(
    'article',
    { className: 'tile' },
    el(
      'h2',
      {},
      el('span', { className: 'long' }, title),
      el('span', { className: 'short' }, short),
    ),
    el('strong', {}, value, unit),
    el('small', {}, more),
    picture,
  );
}

function plot(values, className, name) {
  const label = `${name}, last five minutes: at most ${count(Math.max(0, ...values))}`;
  return el('div', { className: 'plot' }, spark([{ values, className }], SAMPLES, 200, 30, label));
}

function stack(states) {
  const label = STATES.filter((state) => states[state] > 0)
    .map((state) => `${states[state]} ${state}`)
    .join(', ');
  const bar = el('div', { className: 'stack', role: 'img', title: label, 'aria-label': label });
  for (const state of STATES) {
    if (states[state] === 0) continue;
    const part = el('i', { className: `b-${state}` });
    part.style.flexGrow = String(states[state]);
    bar.append(part);
  }
  return bar;
}

/** Writes what is wrong, the worst first, and what is drained. */
export function showProblems({ health: { reasons }, proxy }) {
  const { problems = [], drains = [] } = proxy ?? {};
  const box = byId('problems');
  const drained = drains.map((drain) => {
    if (drain.kind === 'process')
      return 'The whole process is drained: it accepts no new connections.';
    if (drain.kind === 'service') return `${drain.service} is drained.`;
    return `${drain.endpoint}${drain.service === undefined ? '' : ` of ${drain.service}`} is drained.`;
  });
  const wrong = reasons.length + problems.length;
  box.hidden = wrong + drained.length === 0;
  if (box.hidden) return;
  const title = wrong === 0 ? 'Drained' : `${wrong} ${wrong === 1 ? 'problem' : 'problems'}`;
  box.replaceChildren(
    el('h2', {}, title),
    el(
      'ul',
      {},
      ...reasons.map(({ code, message, state }) =>
        el(
          'li',
          { className: state === 'down' ? 't-down' : '' },
          `${message} `,
          el('code', {}, code),
        ),
      ),
      ...problems.map(({ code, message }) => el('li', {}, `${message} `, el('code', {}, code))),
      ...drained.map((text) => el('li', { className: 't-drained' }, text)),
    ),
  );
}
