/** Values of files as text. */
import { escapeAll } from './terminal-text.ts';

/** A text of a file, short enough for a message. */
export function shorten(text: string): string {
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** Both from 1. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** Finds line and column of offsets in a text. */
export function positionsIn(text: string): (offset: number) => Position {
  const starts: number[] = [];
  return (offset) => {
    if (starts.length === 0) {
      starts.push(0);
      for (let end = text.indexOf('\n'); end !== -1; end = text.indexOf('\n', end + 1)) {
        starts.push(end + 1);
      }
    }
    let [line, end] = [0, starts.length];
    while (end - line > 1) {
      const middle = (line + end) >> 1;
      if ((starts[middle] ?? 0) <= offset) line = middle;
      else end = middle;
    }
    return { line: line + 1, column: offset - (starts[line] ?? 0) + 1 };
  };
}

/** Plain scalars that are text both in YAML 1.1, which kpng reads, and in 1.2. */
const PLAIN = /^(?:[A-Za-z][A-Za-z0-9._/-]*|\d{1,3}(?:\.\d{1,3}){3}(?:\/\d{1,2})?)$/;
/** Words that are not text in YAML 1.1. */
const WORDS = /^(?:null|true|false|yes|no|on|off|y|n)$/i;
/** Characters that YAML does not allow unescaped, and that JSON leaves unescaped. */
// oxlint-disable-next-line no-control-regex
const UNPRINTABLE = /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g;

/** A value on one line, with text in quotes where necessary. Lone surrogates, which YAML cannot express, become U+FFFD. */
export function flowText(value: unknown): string {
  if (value === undefined || value === null) return 'null';
  if (Array.isArray(value)) return `[${value.map(flowText).join(', ')}]`;
  if (typeof value === 'object') {
    const pairs = Object.entries(value).map(([key, each]) => `${flowText(key)}: ${flowText(each)}`);
    return `{${pairs.join(', ')}}`;
  }
  // oxlint-disable-next-line typescript/no-base-to-string -- numbers and truth values
  if (typeof value !== 'string') return String(value);
  if (PLAIN.test(value) && !WORDS.test(value)) return value;
  return escapeAll(JSON.stringify(value.toWellFormed()), UNPRINTABLE);
}
