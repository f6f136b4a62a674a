import { isSeq } from 'yaml';
import { ownText } from '../util/own-text.ts';
import { readHead } from './head.ts';
import { checkedItem, refusedItem, schemaProblems, type Item } from './item.ts';
import type { Form, Piece, Split } from './pieces.ts';
import type { LocalProblem } from './problem.ts';
import type { RawEndpoint, RawServiceItem } from './raw.ts';
import { readJson, readList, type Locator, type Reading, type ReadResult } from './reading.ts';
import { validators } from './schema.ts';
import { splitBlock } from './split-block.ts';
import { splitJson } from './split-json.ts';

/** Some endpoints that stand together in a large service item. Depends on nothing but their text. */
export interface Batch {
  readonly values: readonly RawEndpoint[];
  /** By their offset in the batch's text, from the list of its values. */
  readonly errors: readonly LocalProblem[];
  readonly errorCount: number;
}

/** Batches by their text. */
export type Batches = ReadonlyMap<string, Batch>;

/** A batch and where it is. */
interface Part extends Batch {
  readonly text: string;
  /** Offset in the item. */
  readonly start: number;
  /** Index of its first endpoint. */
  readonly first: number;
}

/**
 * Reads a service item with very many endpoints, batch by batch. `known`: batches of a former one.
 * Undefined when it cannot be cut.
 */
export function parseLargeItem(
  text: string,
  form: Form,
  maxProblems: number,
  known: Batches,
): (Item & { readonly batches: Batches }) | undefined {
  const split = form === 'json' ? splitJson(text, 'endpoints') : splitBlockItem(text);
  const head = split && readHead(split, 'endpoints', onlyItem);
  if (split === undefined || head === undefined) return undefined;
  const parts = readParts(text, split, maxProblems, known);
  if (parts === undefined) return undefined;
  const batches = new Map(parts.map((part) => [part.text, part]));
  const errors = parts.flatMap(({ errors, start, first }) => errors.map(shift(start, first)));
  let errorCount = parts.reduce((sum, part) => sum + part.errorCount, 0);
  if (!head.ok) return { ...refusedItem([...head.errors, ...errors], errorCount), batches };
  const headErrors = validators().serviceItem(head.value);
  errorCount += headErrors.length;
  if (errorCount > 0) {
    const inHead = schemaProblems(headErrors, head.value, maxProblems, head.locate);
    return { ...refusedItem([...inHead, ...errors], errorCount), batches };
  }
  const raw: RawServiceItem = {
    ...(head.value as RawServiceItem),
    endpoints: parts.flatMap(({ values }) => values),
  };
  return { ...checkedItem(raw, locatorOf(head, parts, form), maxProblems), batches };
}

/** The item's own key is in the column of its first one. */
function splitBlockItem(text: string): Split | undefined {
  const [lead = ''] = /^ *- +(?=[^ \r\n#])/.exec(text) ?? [];
  return lead === '' ? undefined : splitBlock(text, 'endpoints', lead.length, lead);
}

/** The map of a piece in block style: the one item of its list. */
function onlyItem(contents: unknown): unknown {
  return isSeq(contents) && contents.items.length === 1 ? contents.items[0] : undefined;
}

function readParts(
  text: string,
  split: Split,
  maxProblems: number,
  known: Batches,
): Part[] | undefined {
  const parts: Part[] = [];
  let first = 0;
  for (const batch of batchesOf(text, split.items)) {
    const read = known.get(batch.text) ?? readBatch(ownText(batch.text), split.form, maxProblems);
    if (read === undefined) return undefined;
    const { values, errors, errorCount } = read;
    parts.push({ values, errors, errorCount, ...batch, first });
    first += batch.count;
  }
  return parts;
}

function readBatch(text: string, form: Form, maxProblems: number): Batch | undefined {
  const reading = readBatchList(text, form);
  if (reading === undefined) return undefined;
  if (!reading.ok) return { values: [], errors: reading.errors, errorCount: reading.errors.length };
  const errors = validators().endpoints(reading.value);
  return {
    values: reading.value as RawEndpoint[],
    errors: schemaProblems(errors, reading.value, maxProblems, reading.locate),
    errorCount: errors.length,
  };
}

function readBatchList(text: string, form: Form): ReadResult | undefined {
  if (form === 'block') return readList(text);
  const reading = readJson(`[${text}]`);
  if (reading === undefined || !reading.ok) return reading;
  const { value } = reading;
  return { ok: true, value, locate: (segments, at) => reading.locate(segments, at) - 1 };
}

/** A problem of a batch as one of the item. */
function shift(start: number, first: number): (problem: LocalProblem) => LocalProblem {
  return ({ offset, segments, message }) => {
    const [index, ...rest] = segments;
    const path = typeof index === 'number' ? [first + index, ...rest] : [];
    return { offset: start + offset, segments: ['endpoints', ...path], message };
  };
}

function locatorOf(head: Reading, parts: readonly Part[], form: Form): Locator {
  return (segments, atKey) => {
    const [key, index, ...rest] = segments;
    if (key !== 'endpoints' || typeof index !== 'number') return head.locate(segments, atKey);
    const part = parts.findLast(({ first }) => first <= index);
    const reading = part && readBatchList(part.text, form);
    if (part === undefined || reading?.ok !== true) return head.locate(['endpoints'], true);
    return part.start + reading.locate([index - part.first, ...rest], atKey);
  };
}

/** A batch is longer than this only if a single endpoint is. Characters. */
const MAX_BATCH = 128 * 1024;

/**
 * Puts neighbours together: about a hundred. Where a batch ends is told by the text of its last
 * endpoint, not by a number, so that one more endpoint changes one batch and not all behind it.
 */
function* batchesOf(
  text: string,
  endpoints: readonly Piece[],
): Generator<Piece & { readonly count: number }, void, undefined> {
  let first = 0;
  for (const [index, { text: last, start }] of endpoints.entries()) {
    const from = endpoints[first]?.start ?? start;
    const end = start + last.length;
    const isLast = index === endpoints.length - 1;
    if (!isLast && end - from < MAX_BATCH && checksum(last) % 128 !== 0) continue;
    yield { text: text.slice(from, end), start: from, count: index + 1 - first };
    first = index + 1;
  }
}

function checksum(text: string): number {
  let sum = 0;
  for (let at = 0; at < text.length; at += 1) sum = (sum * 31 + text.charCodeAt(at)) % 16_777_213;
  return sum;
}
