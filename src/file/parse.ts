import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import { servicePath } from '../api/paths.ts';
import { checkItem } from './check.ts';
import { describe } from './describe.ts';
import { foreignKind, layOutPieces, layOutWhole, type ItemResult, type Layout } from './layout.ts';
import { DEFAULT_FILE_LIMITS, type FileLimits } from './limits.ts';
import { digestsOf, patchOf } from './patch.ts';
import { formatPath, lineOf, problemsIn, type Finding, type Problems } from './problem.ts';
import { namespaceOf, type RawFile, type RawNode, type RawServiceItem } from './raw.ts';
import { validators } from './schema.ts';

export interface ParsedState {
  readonly ok: true;
  readonly services: number;
  readonly nodes: readonly RawNode[];
  /** Services of the last valid text that are gone, as `namespace/name`. */
  readonly removed: readonly string[];
  /** Parts of the file without effect, unless the last valid text had them too. */
  readonly newWarnings: Problems;
  /** Number of parsed service items; the others were unchanged. */
  readonly parsedItems: number;
}

/** There is at least one error, and no part of the file may be used. */
export interface RefusedState {
  readonly ok: false;
  readonly errors: Problems;
}

export type ParseResult = ParsedState | RefusedState;

/** The result for one service item. Depends only on its text, so it can be kept by the text's hash. */
interface Item {
  /** `namespace/name`; undefined when there is an error. */
  readonly key?: string;
  /** The first errors; `errorCount` is the total. */
  readonly errors: readonly Finding[];
  readonly errorCount: number;
  readonly warnings: readonly Finding[];
  /** Of its endpoints, if it is large. */
  readonly digests?: Buffer | undefined;
}

type Items = ReadonlyMap<string, Item>;

/** Receives service items that are new or differ from the last valid text, as JSON, while the others are being read. */
export interface ChangedItems {
  add(item: string): void;
  /** Those so far do not count. */
  clear(): void;
}

const IGNORED: ChangedItems = { add: () => undefined, clear: () => undefined };

/** Parses successive versions of a state file, of which it keeps only hashes. */
export class StateParser {
  readonly #limits: FileLimits;
  #items: Items = new Map();
  /** Those of the last valid text. */
  #valid: Items = this.#items;
  /** The digests of its large service items, by key. */
  #large: ReadonlyMap<string, Buffer> = new Map();
  /** The warnings of the last valid text. */
  #warned: ReadonlySet<string> = new Set();

  constructor(limits: FileLimits = DEFAULT_FILE_LIMITS) {
    this.#limits = limits;
  }

  /** Never throws. `changed` gets valid items only, and counts only if there is no error at all. */
  parse(text: string, changed: ChangedItems = IGNORED): ParseResult {
    const pieces = layOutPieces(text, this.#limits);
    const result = pieces && this.#read(text, pieces, changed);
    if (result !== undefined) return result;
    changed.clear();
    const whole = layOutWhole(text, this.#limits);
    if ('problem' in whole) {
      const located = [{ ...whole.problem, path: '' }];
      return { ok: false, errors: problemsIn(text, located, 1, this.#limits.maxProblems) };
    }
    return this.#read(text, whole, changed) ?? { ok: false, errors: { first: [], total: 0 } };
  }

  /** Undefined if the text cannot be read item by item after all. */
  #read(text: string, layout: Layout, changed: ChangedItems): ParseResult | undefined {
    const { maxProblems } = this.#limits;
    const errors = new Findings(text, layout, maxProblems);
    const newWarnings = new Findings(text, layout, maxProblems);
    const nodes = readNodes(layout.rest, errors);
    const items = new Map<string, Item>();
    const firstOf = new Map<string, number>();
    const large = new Map<string, Buffer>();
    const warned = new Set<string>();
    let parsedItems = 0;
    for (let index = 0; index < layout.count; index += 1) {
      const itemText = layout.textOf(index);
      const id = hash('sha256', itemText, 'latin1');
      let item = this.#items.get(id);
      if (item === undefined || (this.#valid !== this.#items && !this.#valid.has(id))) {
        const result = layout.read(index);
        if (result === undefined) return undefined;
        parsedItems += 1;
        item ??= readItem(result, maxProblems);
        if ('value' in result && item.errorCount === 0) {
          const before = this.#large.get(item.key ?? '');
          if (before !== undefined && item.digests !== undefined) {
            const raw = result.value as RawServiceItem;
            changed.add(JSON.stringify(patchOf(raw, before, item.digests)));
          } else changed.add(layout.isJson ? itemText : JSON.stringify(result.value));
        }
      }
      items.set(id, item);
      errors.add(index, item.errors, item.errorCount);
      const { key } = item;
      if (key === undefined) continue;
      if (item.digests !== undefined) large.set(key, item.digests);
      for (const warning of item.warnings) {
        const identity = `${key} ${warning.message}`;
        if (!this.#warned.has(identity) && !warned.has(identity)) newWarnings.add(index, [warning]);
        warned.add(identity);
      }
      const first = firstOf.get(key);
      if (first === undefined) firstOf.set(key, index);
      else errors.addDuplicate(index, first, key);
    }
    this.#items = items;
    if (errors.total > 0) return { ok: false, errors: errors.problems() };
    const removed: string[] = [];
    for (const { key } of this.#valid.values()) {
      if (key !== undefined && !firstOf.has(key)) removed.push(key);
    }
    this.#valid = items;
    this.#large = large;
    this.#warned = warned;
    return {
      ok: true,
      services: firstOf.size,
      nodes,
      removed,
      newWarnings: newWarnings.problems(),
      parsedItems,
    };
  }
}

/** Decodes UTF-8, with or without a byte order mark. */
export function decodeText(bytes: Uint8Array): string | RefusedState {
  const text = new TextDecoder().decode(bytes);
  if (isUtf8(bytes)) return text;
  const message = 'the file is not UTF-8 text';
  const located = [{ offset: text.indexOf('\uFFFD'), path: '', message }];
  return { ok: false, errors: problemsIn(text, located, 1, 1) };
}

function readItem(result: ItemResult, maxProblems: number): Item {
  if ('problem' in result) {
    return { errors: [{ ...result.problem, segments: [] }], errorCount: 1, warnings: NONE };
  }
  const { value } = result;
  const invalid = validators().serviceItem(value);
  if (invalid.length > 0) {
    const errors = invalid.slice(0, maxProblems).map((error) => describe(error, value));
    return { errors, errorCount: invalid.length, warnings: NONE };
  }
  const raw = value as RawServiceItem;
  const { errors, warnings } = checkItem(raw);
  const key = servicePath(namespaceOf(raw.service), raw.service.name);
  const first = (findings: readonly Finding[]): readonly Finding[] =>
    findings.length === 0 ? NONE : findings.slice(0, maxProblems);
  const listed = { errors: first(errors), errorCount: errors.length, warnings: first(warnings) };
  return errors.length > 0 ? listed : { ...listed, key, digests: digestsOf(raw) };
}

/** Shared by all items, as most have no problems. */
const NONE: readonly Finding[] = [];

/** Checks the file without its service items and returns its nodes. */
function readNodes(rest: unknown, errors: Findings): readonly RawNode[] {
  const foreign = foreignKind(rest);
  if (foreign !== undefined) {
    errors.add(undefined, [{ segments: ['kind'], atKey: true, message: foreign }]);
    return [];
  }
  const invalid = validators().file(rest);
  if (invalid.length > 0) {
    errors.add(
      undefined,
      invalid.slice(0, errors.max).map((error) => describe(error, rest)),
      invalid.length,
    );
    return [];
  }
  const { nodes } = rest as RawFile;
  const firstOf = new Map<string, number>();
  for (const [index, { name }] of (nodes ?? []).entries()) {
    const first = firstOf.get(name);
    if (first === undefined) firstOf.set(name, index);
    else {
      const message = `duplicate node '${name}' (see nodes[${first}])`;
      errors.add(undefined, [{ segments: ['nodes', index, 'name'], message }]);
    }
  }
  return nodes ?? [];
}

/** Collects findings of one kind: keeps the first ones and counts the rest. */
class Findings {
  readonly max: number;
  readonly #text: string;
  readonly #layout: Layout;
  readonly #kept: { item: number | undefined; finding: Finding }[] = [];
  total = 0;

  constructor(text: string, layout: Layout, max: number) {
    this.#text = text;
    this.#layout = layout;
    this.max = max;
  }

  add(item: number | undefined, findings: readonly Finding[], total = findings.length): void {
    this.total += total;
    for (const finding of findings) if (!this.#isFull) this.#kept.push({ item, finding });
  }

  addDuplicate(item: number, first: number, key: string): void {
    const segments = ['service', 'name'];
    const line = this.#isFull ? 0 : lineOf(this.#text, this.#layout.locate(first, segments));
    const message = `duplicate service ${key} (see services[${first}] in line ${line})`;
    this.add(item, [{ segments, message }]);
  }

  problems(): Problems {
    const located = this.#kept.map(({ item, finding }) => {
      const { segments, atKey, message, offset } = finding;
      const isUnparsed = offset !== undefined && item !== undefined;
      return {
        offset: isUnparsed
          ? this.#layout.startOf(item) + offset
          : this.#layout.locate(item, segments, atKey),
        path: formatPath(item === undefined ? segments : ['services', item, ...segments]),
        message,
      };
    });
    return problemsIn(this.#text, located, this.total, this.max);
  }

  /** Findings of the rest come first, but may be located after the items. */
  get #isFull(): boolean {
    return this.#kept.length >= this.max * 4;
  }
}
