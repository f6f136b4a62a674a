/** Draws lines of styled text as the window of a terminal, in SVG. */
import { cut } from '../../src/cli/admin/top/screen.ts';

const CELL = { width: 8.43, height: 19 };
const PADDING = 18;
const BAR = 34;

const FACE = '#12161c';
const TEXT = '#d7dde6';

/** By the code of the last style that begins: bold, dim, underlined, reverse and colours. */
const FILLS: Readonly<Record<string, string>> = {
  1: '#eef2f7',
  2: '#7f8b9b',
  4: '#ffffff',
  7: FACE,
  31: '#f5857b',
  32: '#55c98c',
  33: '#e5b04c',
  34: '#6cb6ff',
  35: '#b7a3f7',
};
const BACKS: Readonly<Record<string, string>> = { 4: '#2a5bb5', 7: '#c7d0dc' };
const BOLD: ReadonlySet<string> = new Set(['1', '4', '31']);

/** A picture of a terminal of that many columns. */
export function terminalSvg(lines: readonly string[], columns: number, title: string): string {
  const width = Math.round(columns * CELL.width + 2 * PADDING);
  const height = Math.round(lines.length * CELL.height + 2 * PADDING + BAR - 8);
  const rows = lines.map((line, row) => drawLine(line, row, columns)).join('\n');
  const lights = ['#ec6a5e', '#f4bf4f', '#61c554']
    .map((fill, index) => `<circle cx="${20 + index * 20}" cy="19" r="6" fill="${fill}"/>`)
    .join('');
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img">
<title>${escape(title)}</title>
<rect width="${width}" height="${height}" rx="10" fill="${FACE}"/>
${lights}
<text x="${width / 2}" y="23.500" text-anchor="middle" fill="#7f8b9b" font-family="ui-sans-serif, system-ui, sans-serif" font-size="13">${escape(title)}</text>
<g font-family="'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace" font-size="14">
${rows}
</g>
</svg>
`;
}

/** A text; the group is the code before it. */
// oxlint-disable-next-line no-control-regex
const PIECE = /(?<=^|\u001b\[(\d+)m)[^\u001b]+/g;

function drawLine(line: string, row: number, columns: number): string {
  const y = BAR + PADDING + row * CELL.height;
  let column = 0;
  return [...cut(line, columns).matchAll(PIECE)]
    .map(([text, style = '']) => {
      const x = PADDING + column * CELL.width;
      const wide = text.length * CELL.width;
      column += text.length;
      const fill = BACKS[style];
      const back =
        fill === undefined
          ? ''
          : `<rect x="${round(x - 4)}" y="${round(y - 14)}" width="${round(wide + 8)}" height="${CELL.height}" rx="3" fill="${fill}"/>`;
      if (text.trim() === '') return back;
      const weight = BOLD.has(style) ? ' font-weight="600"' : '';
      // An explicit length keeps columns aligned with any font.
      return `${back}<text x="${round(x)}" y="${round(y)}" fill="${FILLS[style] ?? TEXT}"${weight} textLength="${round(wide)}" lengthAdjust="spacing">${escape(text).replaceAll(' ', '\u00a0')}</text>`;
    })
    .join('');
}

function round(value: number): string {
  return String(Math.round(value * 100) / 100);
}

function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
