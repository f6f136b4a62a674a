import { el, setText } from './dom.js';
import { bytes, count } from './format.js';
import { spark } from './plot.js';

/** The columns: title, what to sort by, and how a cell is filled. */
export const COLUMNS = [
  { title: 'Service', sort: 'name', className: 'name', fill: fillName },
  { title: 'State', sort: 'state', fill: fillState },
  { title: 'Address', fill: fillAddress },
  { title: 'Endpoints', sort: 'endpoints', className: 'number', fill: fillEndpoints },
  number('Active', 'active', ({ active }) => active, count),
  number('Conn/s', 'connections', ({ rates }) => rates.connections, count),
  number('In/s', 'in', ({ rates }) => rates.bytesIn, bytes),
  number('Out/s', 'out', ({ rates }) => rates.bytesOut, bytes),
  number('Errors', 'errors', ({ totals }) => totals.errors, count),
  { title: 'Last 5 min', className: 'spark', fill: fillSpark },
];

function number(title, sort, value, format) {
  return {
    title,
    sort,
    className: 'number',
    fill: (cell, row) => {
      const amount = value(row);
      setText(cell, format(amount));
      cell.classList.toggle('zero', amount === 0);
      cell.classList.toggle('t-down', title === 'Errors' && row.rates.errors > 0);
    },
  };
}

function fillName(cell, { name, protocol }) {
  const slash = name.indexOf('/');
  const colon = name.indexOf(':', slash);
  const service = colon === -1 ? name.slice(slash + 1) : name.slice(slash + 1, colon);
  const button = cell.firstChild ?? el('button', { type: 'button', 'aria-expanded': 'false' });
  if (button.dataset.name === name) return;
  button.dataset.name = name;
  button.title = name;
  button.replaceChildren(
    el('span', { className: 'muted' }, name.slice(0, slash + 1)),
    el('b', {}, service),
    el('span', { className: 'muted' }, colon === -1 ? '' : name.slice(colon)),
    el('span', { className: 'muted' }, protocol === 'UDP' ? ' UDP' : ''),
  );
  cell.replaceChildren(button);
}

function fillState(cell, { state, listeners }) {
  const key = `${state} ${listeners.failed}`;
  if (cell.dataset.key === key) return;
  cell.dataset.key = key;
  cell.className = `state t-${state}`;
  cell.title = listeners.failed > 0 ? `${listeners.failed} addresses could not be opened` : '';
  cell.replaceChildren(el('span', { className: `dot b-${state}` }), state.replace('-', ' '));
}

function fillAddress(cell, { addresses }) {
  const [first = '–', ...more] = addresses;
  setText(cell, more.length === 0 ? first : `${first} +${more.length}`);
  cell.title = addresses.join('\n');
}

function fillEndpoints(cell, { endpoints: { usable, total } }) {
  setText(cell, usable === total ? String(total) : `${usable} of ${total}`);
  cell.classList.toggle('t-degraded', usable < total);
  cell.classList.toggle('zero', total === 0);
}

function fillSpark(cell, { name, spark: values }) {
  const key = values?.join() ?? '';
  if (cell.dataset.key === key) return;
  cell.dataset.key = key;
  if (values === undefined) {
    cell.replaceChildren();
    return;
  }
  const label = `traffic of ${name}: at most ${bytes(Math.max(...values))} a second`;
  const series = [{ values, className: 'c-main' }];
  cell.replaceChildren(spark(series, values.length, 120, 22, label));
}

/** A row with a cell for each column. */
export function newRow() {
  const cells = COLUMNS.map(({ title, className = '' }) => {
    const cell = el('td', { className });
    // Shown where rows are cards.
    cell.dataset.title = title;
    return cell;
  });
  return el('tr', { className: 'row' }, ...cells);
}

export function fillRow(row, service) {
  for (const [index, { fill }] of COLUMNS.entries()) fill(row.cells[index], service);
}

/** The head; `onSort` is told of the key that was chosen. */
export function newHead(onSort) {
  return el(
    'tr',
    {},
    ...COLUMNS.map(({ title, sort, className = '' }) => {
      const inner =
        sort === undefined
          ? el('span', {}, title)
          : el('button', { type: 'button', onclick: () => onSort(sort) }, title);
      const cell = el(
        'th',
        { scope: 'col', className: className === 'number' ? 'number' : '' },
        inner,
      );
      if (sort !== undefined) cell.dataset.sort = sort;
      return cell;
    }),
  );
}

/** Shows what the rows are sorted by: the largest first, but names from A and states from the worst. */
export function markSort(head, { sort, reverse }) {
  const rises = sort === 'name' || sort === 'state';
  for (const cell of head.cells) {
    if (cell.dataset.sort !== sort) cell.removeAttribute('aria-sort');
    else cell.setAttribute('aria-sort', rises === reverse ? 'descending' : 'ascending');
  }
}
