import { isUtf8 } from 'node:buffer';
import type { Node } from '../api/generated/globalv1/api.ts';
import type { GlobalService, GlobalState } from '../store/global-state.ts';
import { ownText } from '../util/own-text.ts';
import { buildNode, buildService } from './build.ts';
import { checkItem } from './check.ts';
import { describe } from './describe.ts';
import { foreignKind } from './foreign.ts';
import { layOutPieces, layOutWhole, type ItemResult, type Layout } from './layout.ts';
import { DEFAULT_FILE_LIMITS, type FileLimits } from './limits.ts';
import { formatPath, lineOf, problemsIn, type Finding, type Problems } from './problem.ts';
import type { RawFile, RawServiceItem } from './raw.ts';
import { validators } from './schema.ts';

export type ParseResult =
  | {
      readonly ok: true;
      readonly state: GlobalState;
      /** Parts of the file without effect, unless the last valid text had them too. */
      readonly newWarnings: Problems;
      /** Number of parsed service items; the others were unchanged. */
      readonly parsedItems: number;
    }
  /** There is at least one error, and no part of the file may be used. */
  | { readonly ok: false; readonly errors: Problems };

/** The result for one service item. Depends only on its text, so it can be cached. */
interface Item {
  readonly text: string;
  /** Undefined when there is an error. */
  readonly service?: GlobalService;
  /** The first errors; `errorCount` is the total. */
  readonly errors: readonly Finding[];
  readonly errorCount: number;
  readonly warnings: readonly Finding[];
}

/** Parses successive versions of a state file. Unchanged parts keep their objects. */
export class StateParser {
  readonly #limits: FileLimits;
  #items: ReadonlyMap<string, Item> = new Map();
  /** The warnings of the last valid text. */
  #warned: ReadonlySet<string> = new Set();

  constructor(limits: FileLimits = DEFAULT_FILE_LIMITS) {
    this.#limits = limits;
  }

  /** Never throws. */
  parse(text: string): ParseResult {
    const pieces = layOutPieces(text, this.#limits);
    const result = pieces && this.#read(text, pieces);
    if (result !== undefined) return result;
    const whole = layOutWhole(text, this.#limits);
    if ('problem' in whole) {
      const located = [{ ...whole.problem, path: '' }];
      return { ok: false, errors: problemsIn(text, located, 1, this.#limits.maxProblems) };
    }
    return this.#read(text, whole) ?? { ok: false, errors: { first: [], total: 0 } };
  }

  /** Undefined if the text cannot be read item by item after all. */
  #read(text: string, layout: Layout): ParseResult | undefined {
    const { maxProblems } = this.#limits;
    const errors = new Findings(text, layout, maxProblems);
    const newWarnings = new Findings(text, layout, maxProblems);
    const nodes = readNodes(layout.rest, errors);
    const items = new Map<string, Item>();
    const services = new Map<string, GlobalService>();
    const firstOf = new Map<string, number>();
    const warned = new Set<string>();
    let parsedItems = 0;
    for (const [index, piece] of layout.items.entries()) {
      let item = this.#items.get(piece.text) ?? items.get(piece.text);
      if (item === undefined) {
        const result = piece.read();
        if (result === undefined) return undefined;
        item = readItem(ownText(piece.text), result, maxProblems);
        parsedItems += 1;
      }
      items.set(item.text, item);
      errors.add(index, item.errors, item.errorCount);
      const { service } = item;
      if (service === undefined) continue;
      for (const warning of item.warnings) {
        const identity = `${service.key} ${warning.message}`;
        if (!this.#warned.has(identity) && !warned.has(identity)) newWarnings.add(index, [warning]);
        warned.add(identity);
      }
      const first = firstOf.get(service.key);
      if (first === undefined) firstOf.set(service.key, index);
      else errors.addDuplicate(index, first, service.key);
      services.set(service.key, service);
    }
    this.#items = items;
    if (errors.total > 0) return { ok: false, errors: errors.problems() };
    this.#warned = warned;
    return {
      ok: true,
      state: { services, nodes },
      newWarnings: newWarnings.problems(),
      parsedItems,
    };
  }
}

/** Decodes UTF-8, with or without a byte order mark. */
export function decodeText(bytes: Uint8Array): string | (ParseResult & { readonly ok: false }) {
  const text = new TextDecoder().decode(bytes);
  if (isUtf8(bytes)) return text;
  const message = 'the file is not UTF-8 text';
  const located = [{ offset: text.indexOf('\uFFFD'), path: '', message }];
  return { ok: false, errors: problemsIn(text, located, 1, 1) };
}

/** Parses a state file once. Never throws. */
export function parseStateFile(text: string, limits?: FileLimits): ParseResult {
  return new StateParser(limits).parse(text);
}

function readItem(text: string, result: ItemResult, maxProblems: number): Item {
  if ('problem' in result) {
    return { text, errors: [{ ...result.problem, segments: [] }], errorCount: 1, warnings: [] };
  }
  const { value } = result;
  const invalid = validators().serviceItem(value);
  if (invalid.length > 0) {
    const errors = invalid.slice(0, maxProblems).map((error) => describe(error, value));
    return { text, errors, errorCount: invalid.length, warnings: [] };
  }
  const raw = value as RawServiceItem;
  const { errors, warnings } = checkItem(raw);
  const listed = { errors: errors.slice(0, maxProblems), warnings: warnings.slice(0, maxProblems) };
  if (errors.length > 0) return { text, ...listed, errorCount: errors.length };
  return { text, ...listed, errorCount: 0, service: buildService(raw) };
}

/** Checks the file without its service items and returns the nodes by name. */
function readNodes(rest: unknown, errors: Findings): Map<string, Node> {
  const nodes = new Map<string, Node>();
  const foreign = foreignKind(rest);
  if (foreign !== undefined) {
    errors.add(undefined, [{ segments: ['kind'], atKey: true, message: foreign }]);
    return nodes;
  }
  const invalid = validators().file(rest);
  if (invalid.length > 0) {
    errors.add(
      undefined,
      invalid.slice(0, errors.max).map((error) => describe(error, rest)),
      invalid.length,
    );
    return nodes;
  }
  const firstOf = new Map<string, number>();
  for (const [index, raw] of ((rest as RawFile).nodes ?? []).entries()) {
    const first = firstOf.get(raw.name);
    if (first === undefined) {
      firstOf.set(raw.name, index);
      nodes.set(raw.name, buildNode(raw));
    } else {
      const message = `duplicate node '${raw.name}' (see nodes[${first}])`;
      errors.add(undefined, [{ segments: ['nodes', index, 'name'], message }]);
    }
  }
  return nodes;
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
