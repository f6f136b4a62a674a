import { el, svg } from './dom.js';
import { age } from './format.js';

/** Points of a line over a width; what is newest is at the right, whatever is missing at the left. */
function points(values, length, width, height, top) {
  const step = width / Math.max(length - 1, 1);
  const begin = (length - values.length) * step;
  return values.map((value, index) => {
    const y = height - (top === 0 ? 0 : (value / top) * (height - 3)) - 1;
    return [begin + index * step, y];
  });
}

function path(list) {
  return list
    .map(([x, y], index) => `${index === 0 ? 'M' : 'L'}${x.toFixed(1)} ${y.toFixed(1)}`)
    .join('');
}

function line(list, height, className) {
  if (list.length < 2) return [];
  const [first] = list;
  const last = list.at(-1);
  const stroke = path(list);
  const area = `${stroke}L${last[0].toFixed(1)} ${height}L${first[0].toFixed(1)} ${height}Z`;
  return [
    svg('path', { class: `area ${className}`, d: area }),
    svg('path', { class: `stroke ${className}`, d: stroke }),
  ];
}

/** A small plot without axes. `series`: lists of numbers with the class that colours them. */
export function spark(series, length, width, height, label) {
  const top = Math.max(0, ...series.flatMap(({ values }) => values));
  const lines = series.flatMap(({ values, className }) =>
    line(points(values, length, width, height, top), height, className),
  );
  return picture(width, height, label, lines);
}

function picture(width, height, label, parts) {
  const viewBox = `0 0 ${width} ${height}`;
  const attributes = { viewBox, preserveAspectRatio: 'none', role: 'img', 'aria-label': label };
  return svg('svg', attributes, ...parts);
}

const WIDTH = 600;
const HEIGHT = 118;

/**
 * A plot of the last minutes, with its peak, a legend that follows the pointer, and its time axis.
 * `series`: `{ name, values, className }`; `format` writes a value.
 */
export function chart(series, samples, intervalSeconds, format) {
  const top = Math.max(0, ...series.flatMap(({ values }) => values));
  // Room above the lines for the word about the peak.
  const lists = series.map(({ values }) => points(values, samples, WIDTH, HEIGHT, top * 1.22));
  const cursor = svg('line', { class: 'cursor', y1: 0, y2: HEIGHT, visibility: 'hidden' });
  const grid = [0.25, 0.5, 0.75].map((part) =>
    svg('line', { class: 'grid', x1: 0, x2: WIDTH, y1: part * HEIGHT, y2: part * HEIGHT }),
  );
  const legend = el('div', { className: 'legend' });
  const write = (index) => {
    legend.replaceChildren(
      ...series.map(({ name, values, className }) => {
        const value = index === undefined ? values.at(-1) : values[index];
        return el('span', { className }, `${name} `, el('b', {}, format(value ?? 0)));
      }),
    );
    if (index === undefined) return;
    const ago = (series[0].values.length - 1 - index) * intervalSeconds;
    legend.append(el('small', { className: 'muted' }, ago === 0 ? 'now' : `${age(ago)} ago`));
  };
  write();
  const summary = series
    .map(
      ({ name, values }) =>
        `${name}: now ${format(values.at(-1) ?? 0)}, at most ${format(Math.max(0, ...values))}`,
    )
    .join('; ');
  const lines = series.flatMap(({ className }, index) => line(lists[index], HEIGHT, className));
  const plot = picture(WIDTH, HEIGHT, summary, [...grid, ...lines, cursor]);
  plot.addEventListener('pointermove', (event) => {
    const { left, width } = plot.getBoundingClientRect();
    const at = ((event.clientX - left) / width) * WIDTH;
    const near = nearest(lists[0] ?? [], at);
    if (near === undefined) return;
    const x = lists[0][near][0];
    for (const name of ['x1', 'x2']) cursor.setAttribute(name, x);
    cursor.setAttribute('visibility', 'visible');
    write(near);
  });
  plot.addEventListener('pointerleave', () => {
    cursor.setAttribute('visibility', 'hidden');
    write();
  });
  const peak = el('span', { className: 'peak' }, `peak ${format(top)}`);
  const minutes = Math.round((samples * intervalSeconds) / 60);
  const ends = [`${minutes} min ago`, 'now'].map((text) => el('span', {}, text));
  const axis = el('div', { className: 'axis' }, ...ends);
  return el('div', {}, legend, el('div', { className: 'chart' }, plot, peak, axis));
}

function nearest(list, x) {
  let best;
  for (const [index, [at]] of list.entries()) {
    if (best === undefined || Math.abs(at - x) < Math.abs(list[best][0] - x)) best = index;
  }
  return best;
}
