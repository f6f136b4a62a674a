/** Draws lines of styled text as the window of a terminal, in SVG. */
import { cut, type Line, type Style } from '../../src/cli/admin/top/screen.ts';

const CELL = { width: 8.43, height: 19 };
const PADDING = 18;
const BAR = 34;

const FACE = '#12161c';
const TEXT = '#d7dde6';

const FILLS: Readonly<Record<Style, string>> = {
  plain: TEXT,
  dim: '#7f8b9b',
  bold: '#eef2f7',
  good: '#55c98c',
  warn: '#e5b04c',
  bad: '#f5857b',
  violet: '#b7a3f7',
  blue: '#6cb6ff',
  head: FACE,
  selected: '#ffffff',
};

const BACKS: Partial<Record<Style, string>> = { head: '#c7d0dc', selected: '#2a5bb5' };

/** A picture of a terminal of that many columns. */
export function terminalSvg(lines: readonly Line[], columns: number, title: string): string {
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

function drawLine(line: Line, row: number, columns: number): string {
  const y = BAR + PADDING + row * CELL.height;
  let column = 0;
  return cut(line, columns)
    .map(({ text, style }) => {
      const x = PADDING + column * CELL.width;
      const wide = text.length * CELL.width;
      column += text.length;
      const fill = BACKS[style];
      const back =
        fill === undefined
          ? ''
          : `<rect x="${round(x - 4)}" y="${round(y - 14)}" width="${round(wide + 8)}" height="${CELL.height}" rx="3" fill="${fill}"/>`;
      if (text.trim() === '') return back;
      const weight =
        style === 'bold' || style === 'bad' || style === 'selected' ? ' font-weight="600"' : '';
      // An explicit length keeps columns aligned with any font.
      return `${back}<text x="${round(x)}" y="${round(y)}" fill="${FILLS[style]}"${weight} textLength="${round(wide)}" lengthAdjust="spacing">${escape(text).replaceAll(' ', '\u00a0')}</text>`;
    })
    .join('');
}

function round(value: number): string {
  return String(Math.round(value * 100) / 100);
}

function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
