import { el } from './dom.js';
import { age, atMost, bytes, count, whole } from './format.js';
import { SAMPLES } from './head.js';
import { chart } from './plot.js';

/** The panel below a row: everything about one service port. */
export function panel(service, history) {
  return el(
    'div',
    { className: 'panel' },
    el('div', { className: 'wide' }, endpoints(service)),
    el('div', { className: 'side' }, ...charts(history)),
    el('div', { className: 'side' }, facts(service), listeners(service)),
  );
}

function charts({ intervalSeconds, bytesIn, bytesOut, connections, errors }) {
  const traffic = [
    { name: 'from clients', values: bytesIn, className: 'c-in' },
    { name: 'to clients', values: bytesOut, className: 'c-out' },
  ];
  const events = [
    { name: 'new connections/s', values: connections, className: 'c-main' },
    { name: 'errors/s', values: errors, className: 'c-bad' },
  ];
  return [
    chart(traffic, SAMPLES, intervalSeconds, (value) => `${bytes(value)}/s`),
    chart(events, SAMPLES, intervalSeconds, count),
  ];
}

const ENDPOINT_HEADS = 'Endpoint,State,Traffic,Active,Total,In,Out,Connect,Errors,Last error';

function endpoints({ endpointsList }) {
  return list(
    'Endpoints',
    ENDPOINT_HEADS,
    endpointsList.map((endpoint) => {
      const { address, state, traffic, active, connections, errors } = endpoint;
      const figure = (value, format) => (value === undefined ? '–' : format(value));
      return {
        state,
        cells: [
          address,
          state,
          traffic.join(', ') || '–',
          figure(active, whole),
          figure(connections, count),
          figure(endpoint.bytesIn, bytes),
          figure(endpoint.bytesOut, bytes),
          connectTime(endpoint),
          figure(errors, count),
          lastError(endpoint),
        ],
      };
    }),
    'No endpoints.',
  );
}

/** Smoothed over the last connections. */
function connectTime({ connectSeconds }) {
  if (typeof connectSeconds !== 'number') return '–';
  const ms = connectSeconds * 1000;
  return `${ms < 10 ? count(Math.round(ms * 10) / 10) : Math.round(ms)} ms`;
}

function lastError({ lastError: error, failingSince }) {
  if (!error) return '–';
  const since = (time) => age(Math.max(0, Date.now() - Date.parse(time)) / 1000);
  const failing = failingSince ? `, failing for ${since(failingSince)}` : '';
  return `${error.cause} ${since(error.at)} ago${failing}`;
}

function listeners({ listenersList }) {
  return list(
    'Listeners',
    'Address,State,Traffic',
    listenersList.map(({ address, state, traffic, code, cause }) => ({
      state,
      cells: [address, code === undefined ? state : `${state}: ${cause} (${code})`, traffic],
    })),
    'No listeners.',
  );
}

const PILLS = {
  ok: 'ok',
  degraded: 'warn',
  'no-endpoints': 'warn',
  down: 'bad',
  drained: 'drained',
};

function facts(service) {
  const { totals, connectTimes, connectErrors, counters, affinity, problems } = service;
  const errors = Object.entries(connectErrors).map(
    ([cause, number]) => `${whole(number)} ${cause}`,
  );
  const others = Object.entries(counters).map(
    ([name, number]) => `${words(name)} ${whole(number)}`,
  );
  const times = [50, 90, 99]
    .map((part) => `${part} % ${atMost(connectTimes[`p${part}`], connectTimes.count)}`)
    .join(', ');
  const rows = [
    ['Addresses', service.addresses.join(', ') || '–'],
    ['Affinity', affinity === 'none' ? 'none' : `client address, ${affinity.clientIP} s`],
    ['Connections', `${whole(totals.connections)} total, ${whole(service.active)} open`],
    ['Bytes', `${bytes(totals.bytesIn)} from clients, ${bytes(totals.bytesOut)} to clients`],
    ['Connect time', times],
    ['Connect errors', errors.join(', ') || 'none'],
    ...(others.length === 0 ? [] : [['Also', others.join(', ')]]),
    ...problems.map(({ code, message }) => [code, message]),
  ];
  const pill = el('span', { className: `pill ${PILLS[service.state] ?? ''}` }, service.state);
  const list = rows.flatMap(([name, text]) => [el('dt', {}, name), el('dd', {}, text)]);
  return el(
    'div',
    {},
    el('h3', {}, `${service.name} ${service.protocol} `, pill),
    el('dl', { className: 'facts' }, ...list),
  );
}

/** `rejectedNoEndpoint` as words. */
function words(name) {
  return name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

function list(title, heads, rows, empty) {
  const head = el('tr', {}, ...heads.split(',').map((name) => el('th', { scope: 'col' }, name)));
  const body = rows.map(({ state, cells }) => {
    const inside = cells.map((text, index) =>
      el('td', { className: index === 1 ? `t-${state}` : '' }, text),
    );
    return el('tr', {}, ...inside);
  });
  const table = el('table', {}, el('thead', {}, head), el('tbody', {}, ...body));
  const props = { className: 'list', tabIndex: 0, role: 'region', 'aria-label': title };
  const isEmpty = rows.length === 0;
  return el(
    'div',
    {},
    el('h3', {}, isEmpty ? title : `${title} (${whole(rows.length)})`),
    isEmpty ? el('p', { className: 'muted' }, empty) : el('div', props, table),
  );
}
