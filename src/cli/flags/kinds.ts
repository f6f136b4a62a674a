import { isIP } from 'node:net';
import type { FieldSchema } from '../../config/fields.ts';
import { formatBytes, parseBytes } from '../../util/bytes.ts';
import { MAX_TIMER_MS } from '../../util/clock.ts';
import { formatDuration, parseDuration } from '../../util/duration.ts';
import { formatHostPort, parseHostPort, type HostPort } from '../../util/host-port.ts';
import { parsePortRange, type PortRange } from '../../util/port-range.ts';
import type { FlagKind } from './table.ts';

const TEXT: FieldSchema = { type: 'string' };
/** No upper limit. */
const ANY = Number.MAX_SAFE_INTEGER;

/** `read` returns undefined for a text that is not in the expected format. */
function kind<T>(
  placeholder: string,
  schema: FieldSchema,
  expected: string,
  read: (given: string) => T | undefined,
  format: (value: NonNullable<T>) => string = String,
): FlagKind<T> {
  const parse = (given: string): T => {
    const value = read(given);
    if (value !== undefined) return value;
    throw new Error(`expected ${expected}`);
  };
  return { placeholder, schema, parse, format };
}

/** A text validated by `check`, which throws an Error with the expected format. */
export function text(placeholder: string, check?: (given: string) => void): FlagKind<string> {
  const parse = (given: string): string => {
    check?.(given);
    return given;
  };
  return { placeholder, schema: TEXT, parse, format: String };
}

/** A text of a format. */
export function textLike(placeholder: string, expected: string, format: RegExp): FlagKind<string> {
  return kind(placeholder, TEXT, expected, (given) => (format.test(given) ? given : undefined));
}

/** The path of a file that has to be named. */
export const path = textLike('path', 'a path', /./s);

export const ipAddress = kind('ip', TEXT, 'an IP address, such as 0.0.0.0 or ::', (given) =>
  isIP(given) === 0 ? undefined : given,
);

export function choice<const Word extends string>(words: readonly Word[]): FlagKind<Word> {
  const schema: FieldSchema = { type: 'string', enum: words };
  const read = (given: string) => words.find((word) => word === given);
  return kind(words.join('|'), schema, words.join(', '), read);
}

/** On or off. The flag alone means on. */
export const toggle = kind('true|false', { type: 'boolean' }, 'true, false', (given) =>
  given === 'true' || given === 'false' ? given === 'true' : undefined,
);

/** Several texts, by default a comma list; a repeated flag adds to them. In a file a list, or the text of the flag. */
export function list(
  placeholder: string,
  check?: (item: string) => void,
  split = (given: string): string[] => trimmed(given, ','),
): FlagKind<readonly string[]> {
  const parse = (given: string): string[] => {
    const items = split(given);
    for (const item of items) check?.(item);
    return items;
  };
  const schema: FieldSchema = { type: ['array', 'string'], items: { type: 'string' } };
  return { placeholder, schema, parse, format: String, joins: true };
}

/** The parts of a text, without blanks around them and without empty ones. */
export function trimmed(text: string, separator: string): string[] {
  return text.split(separator).flatMap((part) => part.trim() || []);
}

/** The number; undefined if it is out of range. */
function within(min: number, max: number, value: number): number | undefined {
  return value >= min && value <= max ? value : undefined;
}

/** A whole number from `min` to `max`, both included. */
export function integer(min: number, max = ANY): FlagKind<number> {
  const range = max === ANY ? `of at least ${min}` : `from ${min} to ${max}`;
  const schema = { type: 'integer', minimum: min, ...(max !== ANY && { maximum: max }) } as const;
  return kind('number', schema, `a whole number ${range}`, (given) =>
    within(min, max, /^-?\d+$/.test(given) ? Number(given) : NaN),
  );
}

/** Bits of a packet mark, `0x40` or decimal. */
export const markBits = kind(
  'bits',
  { type: ['string', 'integer'] },
  'a mark from 0x1 to 0xffffffff',
  (given) => within(1, 0xffffffff, /^(?:0x[\da-f]+|\d+)$/i.test(given) ? Number(given) : NaN),
  (value) => `0x${value.toString(16)}`,
);

export function size(min: number, max = ANY): FlagKind<number> {
  const schema: FieldSchema = { type: ['integer', 'string'], minimum: min };
  const least = formatBytes(min);
  const range = max === ANY ? `at least ${least}` : `${least} to ${formatBytes(max)}`;
  const read = (given: string): number | undefined => {
    const value = parseBytes(given);
    if (value === undefined) throw new Error('expected a number of bytes, such as 4194304 or 4Mi');
    return within(min, max, value);
  };
  return kind('bytes', schema, range, read, formatBytes);
}

/** The approximate format of durations; each flag validates further. */
const DURATION = { type: 'string', pattern: String.raw`^\d[\d.a-zµμ]*$` } as const;

/** A time in milliseconds, written as in Go. */
export function duration(min = 0): FlagKind<number> {
  const expected = 'a duration with a unit, such as 250ms, 30s or 1m30s';
  const read = (given: string): number | undefined => {
    const ms = parseDuration(given);
    if (ms !== undefined && ms < min) throw new Error(`expected at least ${formatDuration(min)}`);
    if (ms !== undefined && ms > MAX_TIMER_MS) throw new Error('expected at most 24 days (576h)');
    return ms;
  };
  return kind('duration', DURATION, expected, read, formatDuration);
}

/** A comma list of times in milliseconds, none of them 0. */
export function durations(): FlagKind<readonly number[]> {
  const { parse, format } = duration(1);
  const read = (given: string): readonly number[] | undefined => {
    const values = given.split(',').map((item) => parse(item.trim()));
    return values.length > 16 ? undefined : values;
  };
  const schema: FieldSchema = { type: ['array', 'string'], items: DURATION };
  const formatAll = (value: readonly number[]): string => value.map(format).join(',');
  return kind('durations', schema, 'at most 16 durations', read, formatAll);
}

/** A value that may be left out: each of these texts is undefined. */
export function optional<T extends {}>(some: FlagKind<T>, none = ['']): FlagKind<T | undefined> {
  return { ...some, parse: (given) => (none.includes(given) ? undefined : some.parse(given)) };
}

const NO_ADDRESS = 'ip:port, [ip6]:port or :port; an empty value or 0 switches it off';

/** The listen address of a server; undefined (an empty text or `0`) switches it off. */
export const listenAddress = optional<HostPort>(
  kind('ip:port', TEXT, NO_ADDRESS, parseHostPort, formatHostPort),
  ['', '0'],
);

const RANGE = 'a range of ports from 1 to 65535, such as 36000-37000';

/** A closed range of ports; undefined (an empty text, `0` or `0-0`) is any port. */
export const portRange = optional<PortRange>(
  kind('first-last', TEXT, RANGE, parsePortRange, ({ first, last }) => `${first}-${last}`),
  ['', '0', '0-0'],
);
