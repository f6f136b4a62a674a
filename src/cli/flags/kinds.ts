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

/** Parses with `read`; throws an Error with the expected format where that returns undefined. */
function expecting<T>(expected: string, read: (given: string) => T | undefined) {
  return (given: string): T => {
    const value = read(given);
    if (value !== undefined) return value;
    throw new Error(`expected ${expected}`);
  };
}

/** A text validated by `check`, which throws an Error with the expected format. */
export function text(
  placeholder: string,
  check: (given: string) => void = () => {},
): FlagKind<string> {
  const parse = (given: string): string => {
    check(given);
    return given;
  };
  return { placeholder, schema: TEXT, parse, format: String };
}

/** A text of a format. */
export function textLike(placeholder: string, expected: string, format: RegExp): FlagKind<string> {
  const check = expecting(expected, (given) => format.test(given) || undefined);
  return text(placeholder, check);
}

/** The path of a file that has to be named. */
export const path = textLike('path', 'a path', /./s);

export const ipAddress = text(
  'ip',
  expecting('an IP address, such as 0.0.0.0 or ::', (given) => isIP(given) || undefined),
);

export function choice<const Word extends string>(words: readonly Word[]): FlagKind<Word> {
  return {
    placeholder: words.join('|'),
    schema: { type: 'string', enum: words },
    parse: expecting(words.join(', '), (given) => words.find((word) => word === given)),
    format: String,
  };
}

/** On or off. The flag alone means on. */
export const toggle: FlagKind<boolean> = {
  placeholder: 'true|false',
  schema: { type: 'boolean' },
  parse: expecting('true, false', (given) =>
    given === 'true' || given === 'false' ? given === 'true' : undefined,
  ),
  format: String,
};

/** Several texts; a repeated flag adds to them. In a file a list, or the text of the flag. */
export function texts(
  placeholder: string,
  parse: (given: string) => readonly string[],
): FlagKind<readonly string[]> {
  const schema: FieldSchema = { type: ['array', 'string'], items: { type: 'string' } };
  return { placeholder, schema, parse, format: String, joins: true };
}

/** A comma list; the flag may also be repeated. */
export function list(
  placeholder: string,
  check: (item: string) => void = () => {},
): FlagKind<readonly string[]> {
  return texts(placeholder, (given) => {
    const items = trimmed(given.split(','));
    items.forEach(check);
    return items;
  });
}

export function trimmed(items: readonly string[]): string[] {
  return items.map((item) => item.trim()).filter((item) => item !== '');
}

/** The value of a number from `min` to `max`, both included. */
function within(min: number, max: number, value: number | undefined): number | undefined {
  return value !== undefined && value >= min && value <= max ? value : undefined;
}

/** A whole number from `min` to `max`, both included. */
export function integer(min: number, max = ANY): FlagKind<number> {
  const range = max === ANY ? `of at least ${min}` : `from ${min} to ${max}`;
  return {
    placeholder: 'number',
    schema: { type: 'integer', minimum: min, ...(max !== ANY && { maximum: max }) },
    parse: expecting(`a whole number ${range}`, (given) =>
      /^-?\d+$/.test(given) ? within(min, max, Number(given)) : undefined,
    ),
    format: String,
  };
}

/** Bits of a packet mark, `0x40` or decimal. */
export const markBits: FlagKind<number> = {
  placeholder: 'bits',
  schema: { type: ['string', 'integer'] },
  parse: expecting('a mark from 0x1 to 0xffffffff', (given) =>
    /^(?:0x[\da-f]+|\d+)$/i.test(given) ? within(1, 0xffffffff, Number(given)) : undefined,
  ),
  format: (value) => `0x${value.toString(16)}`,
};

export function size(min: number, max = ANY): FlagKind<number> {
  const least = formatBytes(min);
  const range = max === ANY ? `at least ${least}` : `${least} to ${formatBytes(max)}`;
  const bytes = expecting('a number of bytes, such as 4194304 or 4Mi', parseBytes);
  return {
    placeholder: 'bytes',
    schema: { type: ['integer', 'string'], minimum: min },
    parse: expecting(range, (given) => within(min, max, bytes(given))),
    format: formatBytes,
  };
}

/** The approximate format of durations; each flag validates further. */
const DURATION = { type: 'string', pattern: String.raw`^\d[\d.a-zµμ]*$` } as const;

/** A time in milliseconds, written as in Go. */
export function duration(min = 0): FlagKind<number> {
  const anyTime = expecting('a duration with a unit, such as 250ms, 30s or 1m30s', parseDuration);
  const atLeast = expecting(`at least ${formatDuration(min)}`, (given) =>
    within(min, Infinity, anyTime(given)),
  );
  const parse = expecting('at most 24 days (576h)', (given) =>
    within(0, MAX_TIMER_MS, atLeast(given)),
  );
  return { placeholder: 'duration', schema: DURATION, parse, format: formatDuration };
}

/** A comma list of times in milliseconds, none of them 0. */
export function durations(): FlagKind<readonly number[]> {
  const { parse, format } = duration(1);
  return {
    placeholder: 'durations',
    schema: { type: ['array', 'string'], items: DURATION },
    parse: expecting('at most 16 durations', (given) => {
      const values = given.split(',').map((item) => parse(item.trim()));
      return values.length > 16 ? undefined : values;
    }),
    format: (value) => value.map(format).join(','),
  };
}

/** A value that may be left out: each of these texts is undefined. */
export function optional<T extends {}>(kind: FlagKind<T>, none = ['']): FlagKind<T | undefined> {
  return { ...kind, parse: (given) => (none.includes(given) ? undefined : kind.parse(given)) };
}

/** The listen address of a server; undefined (an empty text or `0`) switches it off. */
export const listenAddress = optional<HostPort>(
  {
    placeholder: 'ip:port',
    schema: TEXT,
    parse: expecting(
      'ip:port, [ip6]:port or :port; an empty value or 0 switches it off',
      parseHostPort,
    ),
    format: formatHostPort,
  },
  ['', '0'],
);

/** A closed range of ports; undefined (an empty text, `0` or `0-0`) is any port. */
export const portRange = optional<PortRange>(
  {
    placeholder: 'first-last',
    schema: TEXT,
    parse: expecting('a range of ports from 1 to 65535, such as 36000-37000', parsePortRange),
    format: ({ first, last }) => `${first}-${last}`,
  },
  ['', '0', '0-0'],
);
