/**
 * The commands that a page shows, with what they print: blocks of `console`, commands after `$ `.
 *
 * - What is shown is what a command prints on standard output or, where that is nothing, on standard error.
 * - `…` stands for anything on a line, alone on a line for any lines. Times of the day and durations
 *   of log lines may differ.
 * - `^C` as the last line: it continues until someone ends it, who has seen the lines before.
 * - A command that ends with `&` continues as well; what it prints is waited for, too.
 */
import { blocksOf } from './markdown.ts';

export interface Shown {
  readonly command: string;
  readonly output: string;
  /** Whether someone ends it with INT. */
  readonly interrupted: boolean;
  /** Whether it continues while others run. */
  readonly background: boolean;
}

/** All commands of a page in order, of the blocks with this mark. A command continues until a line that begins with `$ `. */
export function shownCommands(page: string, mark = ''): Shown[] {
  return blocksOf(page)
    .filter((block) => block.language === 'console' && block.mark === mark)
    .flatMap(({ text }) => text.split(/^\$ /m).slice(1))
    .map((text) => splitOutput(text));
}

/** A here-document, and lines after one that ends with a backslash, belong to their command. */
function splitOutput(text: string): Shown {
  const here = /^[^\n]*<<'?(\w+)'?\n/.exec(text)?.[1];
  const first = /^(?:.*\\\n)*.*\n/.exec(text)?.[0].length ?? text.length;
  const length = here === undefined ? first : text.indexOf(`\n${here}\n`) + here.length + 2;
  const output = text.slice(length);
  return {
    command: text.slice(0, length),
    output: output.replace(/^\^C\n$/m, ''),
    interrupted: /^\^C\n$/m.test(output),
    background: text.slice(0, length).endsWith('&\n'),
  };
}

/** What is never the same twice, in log lines for people and for programs. */
const VARYING = [
  /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z/g,
  /\d\d:\d\d:\d\d\.\d{3}/g,
  /(?<=\b(?:ms|retryInMs|durationMs|waitedMs)"?[=:])\d+(?:\.\d+)?/g,
];

/** A text with what varies taken out. */
export function withoutVarying(text: string): string {
  return VARYING.reduce((rest, pattern) => rest.replaceAll(pattern, '0'), text);
}

/** Whether what was printed is what the page shows; with `begins`, whether it begins so. */
export function isAsShown(printed: string, shown: string, begins = false): boolean {
  return new RegExp(`^${patternOf(shown)}${begins ? '' : '$'}`, 's').test(withoutVarying(printed));
}

/** Whether what the page shows is a part of what was printed. */
export function containsShown(printed: string, shown: string): boolean {
  return new RegExp(patternOf(shown), 's').test(withoutVarying(printed));
}

function patternOf(shown: string): string {
  return withoutVarying(shown)
    .split('\n')
    .map((line) => (line === '…' ? '.*' : line.split('…').map(escape).join('[^\\n]*')))
    .join('\n');
}

function escape(text: string): string {
  return text.replace(/[$()*+.?[\\\]^{|}]/g, '\\$&');
}
