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
    about.nodeName === null ? '' : `node ${about.nodeName}`,
    about.command,
    source === null ? '' : sourceText(source),
    ...(proxy === null ? [] : [`engine ${proxy.engine}`, `portal ${proxy.portal}`]),
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
  const { active, rates, totals, limits } = proxy;
  const held = active.held > 0 ? ` · ${whole(active.held)} held` : '';
  const of = `${whole(active.tcp)} TCP of ${count(limits[0].max)} · ${whole(active.udp)} UDP${held}`;
  const plot = (key, className, name) => {
    const values = history[key];
    const label = `${name}, last five minutes: at most ${count(Math.max(0, ...values))}`;
    const picture = spark([{ values, className }], SAMPLES, 200, 30, label);
    return el('div', { className: 'plot' }, picture);
  };
  const rate = (title, short, key, format, className, name) =>
    tile(
      title,
      short,
      format(rates[key]),
      `${format(totals[key])} total`,
      plot(key, className, name),
    );
  const services = `${whole(proxy.endpoints)} endpoints · ${whole(proxy.listeners.open)} listeners`;
  byId('tiles').replaceChildren(
    tile(
      'Active',
      'Active',
      count(active.tcp + active.udp),
      of,
      plot('active', 'c-main', 'active connections'),
    ),
    rate('New connections', 'New/s', 'connections', count, 'c-main', 'new connections a second'),
    rate('From clients', 'In/s', 'bytesIn', bytes, 'c-in', 'bytes a second from clients'),
    rate('To clients', 'Out/s', 'bytesOut', bytes, 'c-out', 'bytes a second to clients'),
    rate('Errors', 'Errors/s', 'errors', count, 'c-bad', 'errors a second'),
    tile('Service ports', 'Services', whole(proxy.servicePorts), services, stack(proxy.states)),
  );
}

/** `short`: the title where there is little room; it has the unit of a rate. */
function tile(title, short, value, more, picture) {
  const unit = short.endsWith('/s') ? el('span', {}, '/s') : undefined;
  const titles = [
    el('span', { className: 'long' }, title),
    el('span', { className: 'short' }, short),
  ];
  const number = el('strong', {}, value, unit);
  return el(
    'article',
    { className: 'tile' },
    el('h2', {}, ...titles),
    number,
    el('small', {}, more),
    picture,
  );
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
  const item = ({ code, message, state }) => {
    const className = state === 'down' ? 't-down' : '';
    return el('li', { className }, `${message} `, el('code', {}, code));
  };
  const wrong = reasons.length + problems.length;
  box.hidden = wrong + drained.length === 0;
  if (box.hidden) return;
  const title = wrong === 0 ? 'Drained' : `${wrong} ${wrong === 1 ? 'problem' : 'problems'}`;
  const lines = drained.map((text) => el('li', { className: 't-drained' }, text));
  const list = el('ul', {}, ...[...reasons, ...problems].map(item), ...lines);
  box.replaceChildren(el('h2', {}, title), list);
}
