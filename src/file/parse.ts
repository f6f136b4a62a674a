import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import { servicePath } from '../api/paths.ts';
import { checkItem, describe } from './check.ts';
import { foreignKind, layOutPieces, layOutWhole, type Layout, type ParsedPart } from './layout.ts';
import { DEFAULT_FILE_LIMITS, type FileLimits } from './limits.ts';
import { digestsOf, patchOf } from './patch.ts';
import { formatPath, type Finding, type Problem, type Problems } from './problem.ts';
import { namespaceOf, type RawFile, type RawNode, type RawServiceItem } from './raw.ts';
import { positionsIn } from '../util/yaml-text.ts';
import { validateFile, validateServiceItem, type Validator } from './schema.ts';

export interface ParsedState {
  readonly ok: true;
  readonly services: number;
  readonly nodes: number;
  /** All nodes as JSON, a text as threads exchange those at little cost; undefined: unchanged. */
  readonly nodesText: string | undefined;
  /** It is the first valid text: services and nodes that are not in it are removed. */
  readonly reset: boolean;
  /** Services of the last valid text that are gone, as `namespace/name`. */
  readonly removed: readonly string[];
  /** Parts of the file without effect, unless the last valid text had them too. */
  readonly newWarnings: Problems;
  /** Number of parsed service items; the others were unchanged. */
  readonly parsedItems: number;
}

/** With at least one error, no part of the file may be used. */
export type ParseResult = ParsedState | { readonly ok: false; readonly errors: Problems };

/** A valid service item. Depends only on its text, so it can be kept by the text's hash. */
interface Item {
  /** `namespace/name`. */
  readonly key: string;
  /** By message. */
  readonly warnings: ReadonlyMap<string, Finding>;
  /** Of its endpoints, if it is large. */
  readonly digests: Buffer | undefined;
}

const NO_WARNINGS: ReadonlyMap<string, Finding> = new Map();

/** Receives service items as JSON. */
type OnChanged = (item: string) => void;

/** Parses successive versions of a state file. Of the last valid one, it keeps only hashes. */
export class StateParser {
  readonly #limits: FileLimits;
  #items: ReadonlyMap<string, Item> = new Map();
  #byKey: ReadonlyMap<string, Item> = new Map();
  #nodesText: string | undefined;

  constructor(limits: FileLimits = DEFAULT_FILE_LIMITS) {
    this.#limits = limits;
  }

  /**
   * Parses text, or bytes of UTF-8 with or without a byte order mark, which are freed. Never throws. `onChanged` gets the
   * items that are new or differ from the last valid text, while the others are being read; some of them twice if the
   * text cannot be split after all. They count only if there is no error.
   */
  parse(
    content: string | Uint8Array<ArrayBuffer>,
    onChanged: OnChanged = () => undefined,
  ): ParseResult {
    const text = typeof content === 'string' ? content : new TextDecoder().decode(content);
    if (typeof content !== 'string') {
      if (!isUtf8(content)) {
        const position = positionsIn(text)(text.indexOf('\uFFFD'));
        const problem = { ...position, path: '', message: 'the file is not UTF-8 text' };
        return { ok: false, errors: { first: [problem], total: 1 } };
      }
      content.buffer.transfer(0);
    }
    const pieces = layOutPieces(text, this.#limits);
    const result = pieces && this.#read(pieces, onChanged);
    return result ?? (this.#read(layOutWhole(text, this.#limits), onChanged) as ParseResult);
  }

  /** Undefined if the text cannot be read item by item after all. */
  #read(layout: Layout, onChanged: OnChanged): ParseResult | undefined {
    const errors = new Findings(layout, this.#limits.maxProblems);
    const newWarnings = new Findings(layout, this.#limits.maxProblems);
    const nodes = readNodes(layout.rest, errors);
    const items = new Map<string, Item>();
    const byKey = new Map<string, Item>();
    const firstOf = new Map<string, number>();
    let parsedItems = 0;
    for (let index = 0; index < layout.count; index += 1) {
      const id = hash('sha256', layout.textOf(index), 'latin1');
      let item = this.#items.get(id);
      if (item === undefined) {
        const part = layout.read(index);
        if (part === undefined) return undefined;
        parsedItems += 1;
        const value = checked(part, validateServiceItem, index, errors);
        if (value === undefined) continue;
        const raw = value as RawServiceItem;
        const found = checkItem(raw);
        errors.add(index, found.errors);
        if (found.errors.length > 0) continue;
        item = itemOf(raw, found.warnings);
        const before = this.#byKey.get(item.key);
        for (const [message, warning] of item.warnings) {
          if (before?.warnings.has(message) !== true) newWarnings.add(index, [warning]);
        }
        onChanged(JSON.stringify(patchOf(raw, before?.digests, item.digests) ?? raw));
      }
      items.set(id, item);
      byKey.set(item.key, item);
      const first = firstOf.get(item.key);
      if (first === undefined) firstOf.set(item.key, index);
      else errors.addDuplicate(index, first, item.key);
    }
    if (errors.total > 0) return { ok: false, errors: errors.problems() };
    const nodesText = JSON.stringify(nodes);
    const parsed = {
      ok: true,
      services: byKey.size,
      nodes: nodes.length,
      nodesText: nodesText === this.#nodesText ? undefined : nodesText,
      reset: this.#nodesText === undefined,
      removed: [...this.#byKey.keys()].filter((key) => !byKey.has(key)),
      newWarnings: newWarnings.problems(),
      parsedItems,
    } as const;
    this.#items = items;
    this.#byKey = byKey;
    this.#nodesText = nodesText;
    return parsed;
  }
}

function itemOf(raw: RawServiceItem, found: readonly Finding[]): Item {
  // The first one of several that say the same.
  const warnings = new Map(found.toReversed().map((each) => [each.message, each]));
  return {
    key: servicePath(namespaceOf(raw.service), raw.service.name),
    warnings: warnings.size === 0 ? NO_WARNINGS : warnings,
    digests: digestsOf(raw),
  };
}

/** The nodes of the file; none if there are errors in the file without its service items. */
function readNodes(rest: ParsedPart, errors: Findings): readonly RawNode[] {
  const foreign = 'value' in rest ? foreignKind(rest.value) : undefined;
  if (foreign !== undefined) {
    errors.add(undefined, [{ segments: ['kind'], atKey: true, message: foreign }]);
    return [];
  }
  const file = checked(rest, validateFile, undefined, errors);
  const nodes = (file as RawFile | undefined)?.nodes ?? [];
  const firstOf = new Map<string, number>();
  for (const [index, { name }] of nodes.entries()) {
    const first = firstOf.get(name);
    if (first === undefined) firstOf.set(name, index);
    else {
      const message = `duplicate node '${name}' (see nodes[${first}])`;
      errors.add(undefined, [{ segments: ['nodes', index, 'name'], message }]);
    }
  }
  return nodes;
}

/** A value that the JSON schema allows; otherwise undefined. */
function checked(
  part: ParsedPart,
  validate: Validator,
  item: number | undefined,
  errors: Findings,
): unknown {
  if ('problem' in part) {
    errors.add(item, [{ ...part.problem, segments: [] }]);
    return undefined;
  }
  const { value } = part;
  const invalid = validate(value);
  const described = invalid.slice(0, errors.max).map((error) => describe(error, value));
  errors.add(item, described, invalid.length);
  return invalid.length === 0 ? value : undefined;
}

/** Problems of one kind: keeps the first ones and counts the rest. */
class Findings {
  readonly max: number;
  readonly #layout: Layout;
  readonly #located: { offset: number; path: string; message: string }[] = [];
  total = 0;

  constructor(layout: Layout, max: number) {
    this.#layout = layout;
    this.max = max;
  }

  add(item: number | undefined, findings: readonly Finding[], total = findings.length): void {
    this.total += total;
    for (const { segments, atKey, message, offset } of findings) {
      if (this.#isFull) return;
      const path = formatPath(item === undefined ? segments : ['services', item, ...segments]);
      const at = offset ?? this.#layout.locate(item, segments, atKey);
      this.#located.push({ offset: at, path, message });
    }
  }

  addDuplicate(item: number, first: number, key: string): void {
    const segments = ['service', 'name'];
    const { positionAt } = this.#layout;
    const line = this.#isFull ? 0 : positionAt(this.#layout.locate(first, segments)).line;
    const message = `duplicate service ${key} (see services[${first}] in line ${line})`;
    this.add(item, [{ segments, message }]);
  }

  problems(): Problems {
    const sorted = this.#located.toSorted((a, b) => a.offset - b.offset).slice(0, this.max);
    const first = sorted.map(({ offset, path, message }): Problem => {
      const { line, column } = this.#layout.positionAt(offset);
      return { line, column, path, message };
    });
    return { first, total: this.total };
  }

  /** Those of the rest come first, but may be located after the items. */
  get #isFull(): boolean {
    return this.#located.length >= this.max * 4;
  }
}
