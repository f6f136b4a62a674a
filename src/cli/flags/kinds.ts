import { isIP } from 'node:net';
import { formatBytes, parseBytes } from '../../util/bytes.ts';
import { MAX_TIMER_MS } from '../../util/clock.ts';
import { formatDuration, parseDuration } from '../../util/duration.ts';
import { formatHostPort, parseHostPort, type HostPort } from '../../util/host-port.ts';
import { parsePortRange, type PortRange } from '../../util/port-range.ts';
import type { FlagKind } from './table.ts';

export function text(placeholder: string): FlagKind<string> {
  return checkedText(placeholder, () => {});
}

/** A text validated by `check`, which throws an Error with the expected format. */
export function checkedText(placeholder: string, check: (given: string) => void): FlagKind<string> {
  return {
    placeholder,
    schema: { type: 'string' },
    parse(given) {
      check(given);
      return given;
    },
    format: (value) => value,
  };
}

/** The path of a file that has to be named. */
export function path(): FlagKind<string> {
  return checkedText('path', (given) => {
    if (given === '') throw new Error('expected a path');
  });
}

/** On or off. The flag alone means on. */
export function toggle(): FlagKind<boolean> {
  const words: FlagKind<'true' | 'false'> = choice(['true', 'false']);
  return {
    placeholder: words.placeholder,
    choices: ['true', 'false'],
    bare: 'true',
    schema: { type: 'boolean' },
    parse: (given) => words.parse(given) === 'true',
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
export function integer(min: number, max = Number.MAX_SAFE_INTEGER): FlagKind<number> {
  return {
    placeholder: 'number',
    schema: {
      type: 'integer',
      minimum: min,
      ...(max !== Number.MAX_SAFE_INTEGER && { maximum: max }),
    },
    parse(given) {
      const value = /^-?\d+$/.test(given) ? Number(given) : Number.NaN;
      if (value >= min && value <= max) return value;
      throw new Error(
        max === Number.MAX_SAFE_INTEGER
          ? `expected a whole number of at least ${min}`
          : `expected a whole number from ${min} to ${max}`,
      );
    },
    format: String,
  };
}

/** Bits of a packet mark, `0x40` or decimal. */
export function markBits(): FlagKind<number> {
  return {
    placeholder: 'bits',
    schema: { type: ['string', 'integer'] },
    parse(given) {
      const value = /^(?:0x[\da-f]+|\d+)$/i.test(given) ? Number(given) : 0;
      if (value >= 1 && value <= 0xffffffff) return value;
      throw new Error('expected a mark from 0x1 to 0xffffffff');
    },
    format: (value) => `0x${value.toString(16)}`,
  };
}

/** The approximate format of durations; each flag validates further. */
const DURATION = String.raw`^\d[\d.a-zµμ]*$`;

/** A time in milliseconds, written as in Go. */
export function duration(min = 0): FlagKind<number> {
  return {
    placeholder: 'duration',
    schema: { type: 'string', pattern: DURATION },
    parse: (given) => readDuration(given, min),
    format: formatDuration,
  };
}

/** A comma list of times in milliseconds, none of them 0. */
export function durations(): FlagKind<readonly number[]> {
  return {
    placeholder: 'durations',
    schema: { type: ['array', 'string'], items: { type: 'string', pattern: DURATION } },
    parse(given) {
      const values = given.split(',').map((item) => readDuration(item.trim(), 1));
      if (values.length > 16) throw new Error('expected at most 16 durations');
      return values;
    },
    format: (value) => value.map(formatDuration).join(','),
  };
}

function readDuration(given: string, min: number): number {
  const ms = parseDuration(given);
  if (ms === undefined) {
    throw new Error('expected a duration with a unit, such as 250ms, 30s or 1m30s');
  }
  if (ms < min) throw new Error(`expected at least ${formatDuration(min)}`);
  if (ms > MAX_TIMER_MS) throw new Error('expected at most 24 days (576h)');
  return ms;
}

/** A value that may be left out: each of these texts is undefined. */
export function optional<T>(kind: FlagKind<T>, none = ['']): FlagKind<T | undefined> {
  return {
    placeholder: kind.placeholder,
    schema: kind.schema,
    parse: (given) => (none.includes(given) ? undefined : kind.parse(given)),
    format: (value) => (value === undefined ? '' : kind.format(value)),
  };
}

export function size(min: number, max = Number.MAX_SAFE_INTEGER): FlagKind<number> {
  return {
    placeholder: 'bytes',
    schema: { type: ['integer', 'string'], minimum: min },
    parse(given) {
      const value = parseBytes(given);
      if (value === undefined)
        throw new Error('expected a number of bytes, such as 4194304 or 4Mi');
      if (value < min || value > max) {
        throw new Error(
          max === Number.MAX_SAFE_INTEGER
            ? `expected at least ${formatBytes(min)}`
            : `expected ${formatBytes(min)} to ${formatBytes(max)}`,
        );
      }
      return value;
    },
    format: formatBytes,
  };
}

export function ipAddress(): FlagKind<string> {
  return checkedText('ip', (given) => {
    if (isIP(given) === 0) throw new Error('expected an IP address, such as 0.0.0.0 or ::');
  });
}

/** The listen address of a server; undefined (an empty text or `0`) switches it off. */
export function listenAddress(): FlagKind<HostPort | undefined> {
  const address: FlagKind<HostPort> = {
    placeholder: 'ip:port',
    schema: { type: 'string' },
    parse(given) {
      const parsed = parseHostPort(given);
      if (parsed !== undefined) return parsed;
      throw new Error('expected ip:port, [ip6]:port or :port; an empty value or 0 switches it off');
    },
    format: formatHostPort,
  };
  return optional(address, ['', '0']);
}

/** A closed range of ports; undefined (an empty text, `0` or `0-0`) is any port. */
export function portRange(): FlagKind<PortRange | undefined> {
  const range: FlagKind<PortRange> = {
    placeholder: 'first-last',
    schema: { type: 'string' },
    parse(given) {
      const parsed = parsePortRange(given);
      if (parsed !== undefined) return parsed;
      throw new Error('expected a range of ports from 1 to 65535, such as 36000-37000');
    },
    format: ({ first, last }) => `${first}-${last}`,
  };
  return optional(range, ['', '0', '0-0']);
}

export function choice<const Word extends string>(words: readonly Word[]): FlagKind<Word> {
  return {
    placeholder: words.join('|'),
    choices: words,
    schema: { type: 'string', enum: words },
    parse(given) {
      const word = words.find((candidate) => candidate === given);
      if (word !== undefined) return word;
      throw new Error(`expected ${words.join(', ')}`);
    },
    format: (value) => value,
  };
}
