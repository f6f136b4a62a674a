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
  return { placeholder, schema: TEXT, parse, format: (value) => value };
}

/** A text of a format. */
export function textLike(
  placeholder: string,
  expected: string,
  isLike: (given: string) => boolean,
): FlagKind<string> {
  const parse = expecting(expected, (given) => (isLike(given) ? given : undefined));
  return { ...text(placeholder), parse };
}

/** The path of a file that has to be named. */
export function path(): FlagKind<string> {
  return textLike('path', 'a path', (given) => given !== '');
}

export function ipAddress(): FlagKind<string> {
  return textLike('ip', 'an IP address, such as 0.0.0.0 or ::', (given) => isIP(given) !== 0);
}

export function choice<const Word extends string>(words: readonly Word[]): FlagKind<Word> {
  return {
    placeholder: words.join('|'),
    choices: words,
    schema: { type: 'string', enum: words },
    parse: expecting(words.join(', '), (given) => words.find((word) => word === given)),
    format: (value) => value,
  };
}

/** On or off. The flag alone means on. */
export function toggle(): FlagKind<boolean> {
  const { placeholder, parse } = choice(['true', 'false']);
  return {
    placeholder,
    choices: ['true', 'false'],
    bare: 'true',
    schema: { type: 'boolean' },
    parse: (given) => parse(given) === 'true',
    format: String,
  };
}

/** Several texts; a repeated flag adds to them. In a file a list, or the text of the flag. */
export function texts(
  placeholder: string,
  parse: (given: string) => readonly string[],
): FlagKind<readonly string[]> {
  return {
    placeholder,
    schema: { type: ['array', 'string'], items: { type: 'string' } },
    parse,
    format: (value) => value.join(','),
    merge: (earlier, later) => [...earlier, ...later],
  };
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

/** A whole number from `min` to `max`, both included. */
export function integer(min: number, max = ANY): FlagKind<number> {
  const range = max === ANY ? `of at least ${min}` : `from ${min} to ${max}`;
  return {
    placeholder: 'number',
    schema: { type: 'integer', minimum: min, ...(max !== ANY && { maximum: max }) },
    parse: expecting(`a whole number ${range}`, (given) => {
      const value = /^-?\d+$/.test(given) ? Number(given) : Number.NaN;
      return value >= min && value <= max ? value : undefined;
    }),
    format: String,
  };
}

/** Bits of a packet mark, `0x40` or decimal. */
export function markBits(): FlagKind<number> {
  return {
    placeholder: 'bits',
    schema: { type: ['string', 'integer'] },
    parse: expecting('a mark from 0x1 to 0xffffffff', (given) => {
      const value = /^(?:0x[\da-f]+|\d+)$/i.test(given) ? Number(given) : 0;
      return value >= 1 && value <= 0xffffffff ? value : undefined;
    }),
    format: (value) => `0x${value.toString(16)}`,
  };
}

export function size(min: number, max = ANY): FlagKind<number> {
  const range = max === ANY ? 'at least ' : '';
  const limits = max === ANY ? '' : ` to ${formatBytes(max)}`;
  const bytes = expecting('a number of bytes, such as 4194304 or 4Mi', parseBytes);
  return {
    placeholder: 'bytes',
    schema: { type: ['integer', 'string'], minimum: min },
    parse: expecting(`${range}${formatBytes(min)}${limits}`, (given) => {
      const value = bytes(given);
      return value >= min && value <= max ? value : undefined;
    }),
    format: formatBytes,
  };
}

/** The approximate format of durations; each flag validates further. */
const DURATION = String.raw`^\d[\d.a-zµμ]*$`;

/** A time in milliseconds, written as in Go. */
export function duration(min = 0): FlagKind<number> {
  return {
    placeholder: 'duration',
    schema: { type: 'string', pattern: DURATION },
    parse(given) {
      const ms = parseDuration(given);
      if (ms === undefined) {
        throw new Error('expected a duration with a unit, such as 250ms, 30s or 1m30s');
      }
      if (ms < min) throw new Error(`expected at least ${formatDuration(min)}`);
      if (ms > MAX_TIMER_MS) throw new Error('expected at most 24 days (576h)');
      return ms;
    },
    format: formatDuration,
  };
}

/** A comma list of times in milliseconds, none of them 0. */
export function durations(): FlagKind<readonly number[]> {
  const { parse, format } = duration(1);
  return {
    placeholder: 'durations',
    schema: { type: ['array', 'string'], items: { type: 'string', pattern: DURATION } },
    parse(given) {
      const values = given.split(',').map((item) => parse(item.trim()));
      if (values.length > 16) throw new Error('expected at most 16 durations');
      return values;
    },
    format: (value) => value.map(format).join(','),
  };
}

/** A value that may be left out: each of these texts is undefined. */
export function optional<T extends {}>(kind: FlagKind<T>, none = ['']): FlagKind<T | undefined> {
  const { placeholder, schema, parse, format } = kind;
  return {
    placeholder,
    schema,
    parse: (given) => (none.includes(given) ? undefined : parse(given)),
    format,
  };
}

/** The listen address of a server; undefined (an empty text or `0`) switches it off. */
export function listenAddress(): FlagKind<HostPort | undefined> {
  const expected = 'ip:port, [ip6]:port or :port; an empty value or 0 switches it off';
  const parse = expecting(expected, parseHostPort);
  return optional({ placeholder: 'ip:port', schema: TEXT, parse, format: formatHostPort }, [
    '',
    '0',
  ]);
}

/** A closed range of ports; undefined (an empty text, `0` or `0-0`) is any port. */
export function portRange(): FlagKind<PortRange | undefined> {
  const range: FlagKind<PortRange> = {
    placeholder: 'first-last',
    schema: TEXT,
    parse: expecting('a range of ports from 1 to 65535, such as 36000-37000', parsePortRange),
    format: ({ first, last }) => `${first}-${last}`,
  };
  return optional(range, ['', '0', '0-0']);
}
