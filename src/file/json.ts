import { endOfText } from './split-json.ts';

/** What became of a text that may be JSON. */
export type JsonResult =
  | { readonly kind: 'value'; readonly value: unknown }
  /** JSON lets a key occur twice, and JavaScript takes the last one. YAML does not. */
  | { readonly kind: 'repeatedKey' }
  /** `offset`: where it stops being JSON; undefined when that is not known. */
  | { readonly kind: 'notJson'; readonly offset: number | undefined; readonly reason: string };

/** Parses JSON in which no key occurs twice. Never throws. */
export function parseJson(text: string): JsonResult {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const position = /at position (\d+)/.exec(reason)?.[1];
    const offset = position === undefined ? undefined : Number(position);
    return { kind: 'notJson', offset, reason: reason.replace(/ (?:in JSON )?at position.*$/s, '') };
  }
  return countColons(text) === countKeys(value)
    ? { kind: 'value', value }
    : { kind: 'repeatedKey' };
}

/** How many keys are written in a text that is JSON: one for each colon outside quotes. */
function countColons(text: string): number {
  let count = 0;
  let at = 0;
  while (at < text.length) {
    const char = text.charCodeAt(at);
    if (char === QUOTE) {
      at = endOfText(text, at);
      continue;
    }
    if (char === COLON) count += 1;
    at += 1;
  }
  return count;
}

/** Without recursion: a text may be nested deeper than the stack. */
function countKeys(root: unknown): number {
  const left: unknown[] = [root];
  let count = 0;
  while (left.length > 0) {
    const value = left.pop();
    if (typeof value !== 'object' || value === null) continue;
    const values: unknown[] = Object.values(value);
    if (!Array.isArray(value)) count += values.length;
    for (const each of values) if (typeof each === 'object') left.push(each);
  }
  return count;
}

const QUOTE = 0x22;
const COLON = 0x3a;
