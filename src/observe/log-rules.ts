import { Subscriptions, type TypedChannel } from '../util/channel.ts';
import { systemClock, type Clock, type Timer } from '../util/clock.ts';
import type { AdjustableLog, Log, LogKeys } from './log.ts';

/** One line of the tables that map events to log lines. */
export interface LogRule {
  /** Minimum verbosity; 0: always needed. */
  readonly v: number;
  subscribe(subscriptions: Subscriptions, log: Log, limiter: LogLimiter): void;
}

/**
 * A log line: its severity, its minimum verbosity, if any, and its message. `limited`: many clients could cause it, so
 * below `-v=3` its rate is limited.
 */
export type LogLine =
  `${'error' | 'warn' | 'info'}${'' | ` ${1 | 2 | 3 | 4}`}${'' | ' limited'}: ${string}`;

type Field<Event> =
  (keyof Event & string) | `${keyof Event & string}~` | `${keyof Event & string}:${string}`;

/** `Text` if it is a list of fields, separated by blanks. */
type FieldList<Event, Text extends string> = Text extends `${infer First} ${infer Rest}`
  ? First extends Field<Event>
    ? `${First} ${FieldList<Event, Rest>}`
    : never
  : Extract<Text, Field<Event>>;

/**
 * A log line for an event, or a function that chooses it; undefined: none. `keys`: fields of the event, `field:key` to use
 * another key, or a function that makes the keys; a list of keys makes one line each. Keys are named after fields, with the
 * exceptions of `KEY_NAMES`; fields that are undefined or empty are left out, times in milliseconds are rounded, with `~` to tenths; the key `seconds` has them in seconds. `from`: the
 * lowest verbosity of the lines that the function chooses; below it, the channel gets no subscriber.
 */
export function on<Event extends object, const Text extends string = never>(
  channel: TypedChannel<Event>,
  line: LogLine | ((event: Event) => LogLine | undefined),
  keys: (Text & FieldList<Event, Text>) | ((event: Event) => LogKeys | readonly LogKeys[]),
  from = 0,
): LogRule {
  const fields = typeof keys === 'string' ? keys.split(' ') : [];
  const fixed = typeof line === 'string' ? parseLine(line) : undefined;
  const write = (log: Log, limiter: LogLimiter, event: Event): void => {
    const chosen = typeof line === 'string' ? line : line(event);
    if (chosen === undefined) return;
    const { severity, v, isLimited, message } = fixed ?? parseLine(chosen);
    if (v > log.verbosity) return;
    for (const line of [typeof keys === 'function' ? keys(event) : keysOf(event, fields)].flat()) {
      const suppressed = isLimited && log.verbosity < UNLIMITED_FROM ? limiter.take(message) : 0;
      if (suppressed === undefined) continue;
      const all = suppressed > 0 ? { ...line, suppressed } : line;
      if (severity !== 'info') log[severity](message, all);
      else if (v === 0) log.info(message, all);
      else log.v(v, message, all);
    }
  };
  return {
    v: fixed?.v ?? from,
    subscribe(subscriptions, log, limiter) {
      subscriptions.on(channel, (event) => write(log, limiter, event));
    },
  };
}

const LINE = /^(\w+)(?: (\d))?( limited)?: (.*)$/s;

function parseLine(line: LogLine) {
  const [, severity, v = '0', limited, message = ''] = LINE.exec(line) ?? [];
  const isLimited = limited !== undefined;
  return { severity: severity as 'error' | 'warn' | 'info', v: Number(v), isLimited, message };
}

const KEY_NAMES: Readonly<Record<string, string>> = {
  servicePort: 'servicePortName',
  error: 'err',
  peer: 'client',
  nodeName: 'node',
  origin: 'config',
  durationMs: 'ms',
};

function keysOf(event: object, fields: readonly string[]): LogKeys {
  const keys: Record<string, unknown> = {};
  for (const field of fields) {
    const [name = '', key = KEY_NAMES[name] ?? name] = field.replace('~', '').split(':');
    const value: unknown = event[name as keyof typeof event];
    if (value === undefined || value === '') continue;
    const isTime = typeof value === 'number' && name.endsWith('Ms');
    const parts = field.endsWith('~') ? 10 : 1;
    const time = Math.round(Number(value) * parts) / parts;
    keys[key] = isTime ? time / (key === 'seconds' ? 1000 : 1) : value;
  }
  return keys;
}

/** At this verbosity, lines about connections are no longer rate-limited. */
const UNLIMITED_FROM = 3;

/**
 * Logs events. Subscribes only to channels needed at the current verbosity, so that an event costs nothing unless it
 * is logged. Returns a function that ends this.
 */
export function subscribeLog(
  log: AdjustableLog,
  rules: readonly LogRule[],
  clock: Clock = systemClock,
): () => void {
  const limiter = limiterOf(log, clock);
  let subscriptions = new Subscriptions();
  const update = (verbosity: number): void => {
    const previous = subscriptions;
    subscriptions = new Subscriptions();
    for (const rule of rules) {
      if (rule.v <= verbosity) rule.subscribe(subscriptions, log, limiter);
    }
    // Only now: a channel must not be without a subscriber in between.
    previous.end();
  };
  update(log.verbosity);
  const endUpdates = log.onVerbosity(update);
  return () => {
    endUpdates();
    subscriptions.end();
    limiter.close();
  };
}

/** Lines of one kind that may come at once; after that, one per second. */
const BURST = 10;
/** Maximum time before suppressed lines are reported. Milliseconds. */
const REPORT_AFTER_MS = 10_000;

interface Bucket {
  tokens: number;
  at: number;
  suppressed: number;
  timer: Timer | undefined;
}

/**
 * Keeps one kind of line from flooding the log: a token bucket for each kind. The kinds are the messages of the log
 * table, so there are few. Suppressed lines are always counted: the next line has their number, or a line of their own if
 * none follows for a while.
 */
function limiterOf(log: Log, clock: Clock) {
  const buckets = new Map<string, Bucket>();
  const flush = (line: string, bucket: Bucket): void => {
    bucket.timer?.cancel();
    bucket.timer = undefined;
    const { suppressed } = bucket;
    bucket.suppressed = 0;
    if (suppressed > 0) log.warn('Log lines suppressed', { line, suppressed });
  };
  return {
    /** Undefined: suppress the line. A number: write it, with the number of lines suppressed before. */
    take(kind: string): number | undefined {
      const now = clock.now();
      const bucket = buckets.get(kind) ?? {
        tokens: BURST,
        at: now,
        suppressed: 0,
        timer: undefined,
      };
      buckets.set(kind, bucket);
      bucket.tokens = Math.min(BURST, bucket.tokens + (now - bucket.at) / 1000);
      bucket.at = now;
      if (bucket.tokens < 1) {
        bucket.suppressed += 1;
        bucket.timer ??= clock.setTimer(REPORT_AFTER_MS, () => flush(kind, bucket));
        return undefined;
      }
      bucket.tokens -= 1;
      const { suppressed } = bucket;
      bucket.suppressed = 0;
      return suppressed;
    },
    /** Reports suppressed lines and stops the timers. */
    close(): void {
      for (const [kind, bucket] of buckets) flush(kind, bucket);
    },
  };
}

type LogLimiter = ReturnType<typeof limiterOf>;
