import type { Node as ClusterNode } from '../api/generated/globalv1/api.ts';
import { formatBytes } from '../util/bytes.ts';
import { ownText } from '../util/own-text.ts';
import { Collector, type Collected } from './collector.ts';
import { readHead } from './head.ts';
import { readItem, refusedItem, type Item } from './item.ts';
import { parseLargeItem, type Batch, type Batches } from './large-item.ts';
import { DEFAULT_FILE_LIMITS, type FileLimits } from './limits.ts';
import { readNodes, withoutItems } from './nodes.ts';
import type { Form, Split } from './pieces.ts';
import { readPiece } from './reading.ts';
import { splitBlock } from './split-block.ts';
import { splitJson } from './split-json.ts';
import { parseWhole } from './whole.ts';

/** A service item, and the batches of a large one. */
type KeptItem = Item & { readonly batches?: Batches };

/** What is kept from one parse to the next. */
export interface ParseMemory {
  /** Service items by their text: they are not parsed again. */
  readonly items: ReadonlyMap<string, KeptItem>;
  /** What the warnings of the last valid text are known by. */
  readonly warnings: ReadonlySet<string>;
}

export type ParseResult = Collected & {
  readonly memory: ParseMemory;
  /** How many service items were parsed, not taken from the memory. */
  readonly parsedItems: number;
};

export interface ParseOptions {
  readonly limits?: FileLimits | undefined;
  /** Of a former parse with the same limits. */
  readonly memory?: ParseMemory | undefined;
  /** Service items with more characters are parsed endpoint by endpoint. Default: 64 Ki. */
  readonly largeItem?: number | undefined;
}

const NO_MEMORY: ParseMemory = { items: new Map(), warnings: new Set() };

/** Parses a state file. Never throws, whatever the text. */
export function parseStateFile(text: string, options: ParseOptions = {}): ParseResult {
  const { limits = DEFAULT_FILE_LIMITS, memory = NO_MEMORY, largeItem = 64 * 1024 } = options;
  const settings = { limits, memory, largeItem };
  const split = splitBlock(text, 'services') ?? splitJson(text, 'services');
  const inPieces = split && parsePieces(split, settings, collectorFor(text, settings));
  if (inPieces !== undefined) return inPieces;
  const collector = collectorFor(text, settings);
  const { nodes, items } = parseWhole(text, limits, collector);
  // If this is only a mistake of the moment, most of the pieces are there again in the next text.
  return result(collector.result(nodes), items, memory, memory.items);
}

interface Settings {
  readonly limits: FileLimits;
  readonly memory: ParseMemory;
  readonly largeItem: number;
}

function collectorFor(text: string, { limits, memory }: Settings): Collector {
  const { maxProblems } = limits;
  return new Collector({ text, maxProblems, knownWarnings: memory.warnings });
}

function result(
  collected: Collected,
  parsedItems: number,
  former: ParseMemory,
  items: ParseMemory['items'],
): ParseResult {
  const warnings = collected.ok ? collected.knownWarnings : former.warnings;
  return { ...collected, parsedItems, memory: { items, warnings } };
}

/** Parses the file service by service. Undefined when it turns out that it cannot be cut. */
function parsePieces(
  split: Split,
  settings: Settings,
  collector: Collector,
): ParseResult | undefined {
  const head = readHead(split, 'services', (contents) => contents);
  if (head === undefined) return undefined;
  let nodes: readonly ClusterNode[] = [];
  if (head.ok) nodes = readNodes({ ...head, value: withoutItems(head.value) }, collector);
  else collector.addErrors(head.errors);
  const { memory } = settings;
  const batches = batchesOf(memory);
  const items = new Map<string, KeptItem>();
  let parsedItems = 0;
  for (const { text, start } of split.items) {
    let item = memory.items.get(text);
    if (item === undefined) {
      // What is found in it may stay for long after the file has changed.
      item = parseItem(ownText(text), split.form, settings, batches);
      if (item === undefined) return undefined;
      parsedItems += 1;
    }
    items.set(text, item);
    collector.addItem(item, start, () => start + nameOffset(text, split.form));
  }
  return result(collector.result(nodes), parsedItems, memory, items);
}

function parseItem(
  text: string,
  form: Form,
  { limits, largeItem }: Settings,
  known: Batches,
): KeptItem | undefined {
  const { maxProblems, maxTreeChars } = limits;
  if (text.length > largeItem) {
    const large = parseLargeItem(text, form, maxProblems, known);
    if (large !== undefined) return large;
  }
  if (form === 'block' && text.length > maxTreeChars) {
    return refusedItem([{ offset: 0, segments: [], message: tooLargeItem(maxTreeChars) }], 1);
  }
  const reading = readPiece(text, form);
  return reading && readItem(reading, maxProblems);
}

function tooLargeItem(maxTreeChars: number): string {
  const limit = formatBytes(maxTreeChars);
  return `a service of more than ${limit} characters must have its endpoints in block style`;
}

/** For an item of more characters it is the start of the item: looking for the name would take long. */
const MAX_SEARCHED = 256 * 1024;

function nameOffset(text: string, form: Form): number {
  const reading = text.length > MAX_SEARCHED ? undefined : readPiece(text, form);
  return reading?.ok === true ? reading.locate(['service', 'name'], false) : 0;
}

/** The batches of all large items. */
function batchesOf({ items }: ParseMemory): Batches {
  const all = new Map<string, Batch>();
  for (const { batches = NO_BATCHES } of items.values()) {
    for (const [text, batch] of batches) all.set(text, batch);
  }
  return all;
}

const NO_BATCHES: Batches = new Map();
