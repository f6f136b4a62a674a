/**
 * Parses untrusted YAML. Time and memory grow only with the length of the text: nesting and alias expansion are
 * bounded. Plain scalars follow YAML 1.2's core schema; keys are text as written; there are no merge keys and no tags
 * but `!!str`.
 */
import {
  boolCoreTag,
  EVENT_ID,
  floatCoreTag,
  getScalarValue,
  intCoreTag,
  NOT_RESOLVED,
  nullCoreTag,
  parseEvents,
  SCALAR_STYLE,
  YAMLException,
  type AliasEvent,
  type Event,
  type ScalarEvent,
} from 'js-yaml';
import { messageOf } from '../errors.ts';
import { shorten } from './yaml-text.ts';

export interface YamlLimits {
  /** How deep lists and maps may be nested. */
  readonly maxDepth: number;
  /** Maximum number of values that the aliases of a text expand to; 64 characters of text count as one more. */
  readonly maxAliasedValues: number;
}

/** A step from a value into it: a key of a map, or an index of a list. */
export type Segment = string | number;

export interface YamlDocument {
  readonly value: unknown;
  /** Offset in the text. */
  readonly offset: number;
}

/** Why a text is not usable. */
export interface YamlProblem {
  /** Offset in the text. */
  readonly offset: number;
  readonly message: string;
  /** An alias refers to nothing in the text: it may, if the text is a part of another one. */
  readonly isUnresolved?: boolean;
}

export type YamlResult =
  | { readonly ok: true; readonly documents: readonly YamlDocument[] }
  | { readonly ok: false; readonly problem: YamlProblem };

/** Parses a text, and records its `parts` if given. Never throws. */
export function parseYaml(text: string, limits: YamlLimits, parts?: Parts): YamlResult {
  try {
    const events = parseEvents(text, { maxDepth: limits.maxDepth });
    return { ok: true, documents: new Builder(text, events, limits, parts).documents() };
  } catch (error) {
    if (error instanceof Refusal) return { ok: false, problem: error.problem };
    if (!(error instanceof YAMLException)) {
      return { ok: false, problem: { offset: 0, message: messageOf(error) } };
    }
    const offset = error.mark?.position ?? 0;
    return { ok: false, problem: { offset, message: wordsFor(error.reason) } };
  }
}

/** Finds the offset of the part of a value that segments name, or of its key. */
export type YamlLocator = (segments: readonly Segment[], atKey?: boolean) => number;

/**
 * Finds where the parts of a value are written, in one document of a text that was parsed before. If a part is
 * missing, the offset of the last existing part is returned.
 */
export function locatorIn(text: string, limits: YamlLimits, document = 0): YamlLocator {
  const parts: Parts = new Map();
  const parsed = parseYaml(text, limits, parts);
  const root = parsed.ok ? parsed.documents[document] : undefined;
  return (segments, atKey = false) => {
    let { value, offset } = root ?? { value: undefined, offset: 0 };
    for (const [depth, segment] of segments.entries()) {
      const found = parts.get(value)?.get(segment);
      if (found === undefined) break;
      offset = found.keyAt ?? offset;
      if (!atKey || depth < segments.length - 1) offset = found.valueAt ?? offset;
      ({ value } = found);
    }
    return offset;
  };
}

/** A part of a map or list, and the offsets of its key and value; undefined when they are not written. */
interface Part {
  readonly value: unknown;
  readonly keyAt: number | undefined;
  readonly valueAt: number | undefined;
}

type Parts = Map<unknown, Map<Segment, Part>>;

/** Offset of a value; undefined when it is not written. */
function startOf(event: Event | undefined): number | undefined {
  if (event === undefined) return undefined;
  if (event.type === EVENT_ID.ALIAS) return event.anchorStart - 1;
  if ('start' in event) return event.start;
  if (event.type !== EVENT_ID.SCALAR || event.valueStart < 0) return undefined;
  const { style, valueStart } = event;
  const isQuoted = style === SCALAR_STYLE.SINGLE_QUOTED || style === SCALAR_STYLE.DOUBLE_QUOTED;
  return isQuoted ? valueStart - 1 : valueStart;
}

class Refusal extends Error {
  readonly problem: YamlProblem;

  constructor(problem: YamlProblem) {
    super(problem.message);
    this.problem = problem;
  }
}

const UNSUPPORTED_TAG = 'no tag but !!str is supported';

interface Anchored {
  readonly value: unknown;
  /** Number of values with aliases expanded. */
  readonly size: number;
}

const VISIBLE = { enumerable: true, configurable: true, writable: true };

/** Makes values of the parser's events. With closures instead of private fields, large files take a quarter longer. */
class Builder {
  readonly #text: string;
  readonly #events: readonly Event[];
  readonly #limits: YamlLimits;
  readonly #parts: Parts | undefined;
  readonly #anchors = new Map<string, Anchored | undefined>();
  #next = 0;
  #values = 0;
  #aliased = 0;

  /** `parts` is filled, if given. */
  constructor(text: string, events: readonly Event[], limits: YamlLimits, parts?: Parts) {
    this.#text = text;
    this.#events = events;
    this.#limits = limits;
    this.#parts = parts;
  }

  documents(): YamlDocument[] {
    const documents: YamlDocument[] = [];
    while (this.#next < this.#events.length) {
      const offset = startOf(this.#events[this.#next + 1]) ?? 0;
      this.#anchors.clear();
      this.#next += 1;
      const value = this.#value();
      this.#next += 1;
      documents.push({ value, offset });
    }
    return documents;
  }

  #value(): unknown {
    const event = this.#events[this.#next++];
    if (event === undefined || event.type === EVENT_ID.DOCUMENT || event.type === EVENT_ID.POP) {
      throw new Error('the YAML parser failed');
    }
    if (event.type === EVENT_ID.ALIAS) return this.#alias(event);
    const { anchorStart, tagStart } = event;
    const anchor = anchorStart < 0 ? undefined : this.#text.slice(anchorStart, event.anchorEnd);
    if (anchor !== undefined) this.#anchors.set(anchor, undefined);
    const before = this.#values;
    this.#values += 1;
    let value: unknown;
    if (event.type === EVENT_ID.SCALAR) {
      value = this.#scalar(event);
      if (typeof value === 'string') this.#values += value.length >> 6;
    } else {
      if (tagStart >= 0) throw this.#refusal(UNSUPPORTED_TAG, { offset: tagStart });
      value = this.#collection(event.type === EVENT_ID.MAPPING);
    }
    if (anchor !== undefined) this.#anchors.set(anchor, { value, size: this.#values - before });
    return value;
  }

  #collection(isMap: boolean): object {
    const made: Record<Segment, unknown> = isMap ? {} : ([] as never);
    const parts = this.#parts && new Map<Segment, Part>();
    for (let index = 0; this.#events[this.#next]?.type !== EVENT_ID.POP; index += 1) {
      const keyAt = startOf(this.#events[this.#next]);
      const key = isMap ? this.#key() : index;
      if (isMap && Object.hasOwn(made, key)) {
        throw this.#refusal(`duplicate key '${shorten(String(key))}'`);
      }
      const valueAt = startOf(this.#events[this.#next]);
      const value = this.#value();
      parts?.set(key, { value, keyAt, valueAt });
      if (key !== '__proto__') made[key] = value;
      else Object.defineProperty(made, key, { ...VISIBLE, value });
    }
    this.#next += 1;
    if (parts !== undefined) this.#parts?.set(made, parts);
    return made;
  }

  #key(): string {
    const event = this.#events[this.#next];
    this.#next += 1;
    this.#values += 1;
    if (event?.type !== EVENT_ID.SCALAR) throw this.#refusal('a key must be text');
    return getScalarValue(this.#text, event);
  }

  #scalar(event: ScalarEvent): unknown {
    const text = getScalarValue(this.#text, event);
    const { tagStart, tagEnd } = event;
    if (tagStart < 0) return event.style === SCALAR_STYLE.PLAIN ? resolvePlain(text) : text;
    if (/^!(?:!str)?$/.test(this.#text.slice(tagStart, tagEnd))) return text;
    throw this.#refusal(UNSUPPORTED_TAG, { offset: tagStart });
  }

  #alias({ anchorStart, anchorEnd }: AliasEvent): unknown {
    const name = this.#text.slice(anchorStart, anchorEnd);
    const anchored = this.#anchors.get(name);
    if (anchored === undefined) {
      const isUnresolved = !this.#anchors.has(name);
      const what = isUnresolved ? 'refers to nothing before it' : 'refers to itself';
      throw this.#refusal(`alias '*${shorten(name)}' ${what}`, { isUnresolved });
    }
    this.#values += anchored.size;
    this.#aliased += anchored.size;
    const { maxAliasedValues } = this.#limits;
    if (this.#aliased > maxAliasedValues) {
      throw this.#refusal(`the aliases stand for more than ${maxAliasedValues} values`);
    }
    return anchored.value;
  }

  /** About the last event. */
  #refusal(message: string, more: Partial<YamlProblem> = {}): Refusal {
    const offset = startOf(this.#events[this.#next - 1]) ?? 0;
    return new Refusal({ offset, message, ...more });
  }
}

const PLAIN_TAGS = [nullCoreTag, boolCoreTag, intCoreTag, floatCoreTag];

/** The meaning of a scalar without quotes. */
function resolvePlain(text: string): unknown {
  // Most are names, which match none of the tags.
  if (!/^(?:[-+.~\d]|[nNtTfF][a-zA-Z]{3,4}$|$)/.test(text)) return text;
  for (const tag of PLAIN_TAGS) {
    const value: unknown = tag.resolve(text, false, tag.tagName);
    if (value !== NOT_RESOLVED) return value;
  }
  return text;
}

/** Parser errors in plain words. It reports where it stopped, which is behind the cause: hence "before this". */
const WORDS: readonly (readonly [RegExp, string])[] = [
  [/^nesting exceeded/, 'nested too deeply'],
  [/within a double quoted scalar/, 'a text in double quotes is not closed before this'],
  [/within a single quoted scalar/, 'a text in single quotes is not closed before this'],
  [/within a flow collection/, "a '[' or '{' is not closed before this"],
  [/^missed comma/, "a comma is missing before this, or a '[' or '{' is not closed"],
  [
    /^deficient indentation/,
    'a quote or bracket is not closed before this, or the indentation is wrong',
  ],
  [/^tab characters/, 'a tab where only spaces may be'],
  [
    /^bad indentation of a mapping/,
    "wrong indentation of a key, or a ': ' too many in a text without quotes",
  ],
  [/^bad indentation of a sequence/, 'wrong indentation: the items of a list start in one column'],
  [
    /^expected ':' after|^can not read a block mapping entry/,
    "this is neither a key with ': ' nor part of the line before; is the indentation right?",
  ],
  [
    /^end of the stream or a document separator/,
    'wrong indentation: this belongs to nothing above it',
  ],
];

function wordsFor(reason: string): string {
  return WORDS.find(([pattern]) => pattern.test(reason))?.[1] ?? reason;
}
