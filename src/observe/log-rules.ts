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
  const limiter = new LogLimiter(clock, (kind, suppressed) =>
    log.warn('Log lines suppressed', { line: kind, suppressed }),
  );
  const subscriptions = new Map<LogRule, Subscriptions>();
  const update = (verbosity: number): void => {
    for (const rule of rules) {
      const present = subscriptions.get(rule);
      if (rule.v > verbosity) {
        present?.end();
        subscriptions.delete(rule);
      } else if (present === undefined) {
        const added = new Subscriptions();
        subscriptions.set(rule, added);
        rule.subscribe(added, log, limiter);
      }
    }
  };
  update(log.verbosity);
  const endUpdates = log.onVerbosity(update);
  return () => {
    endUpdates();
    update(-1);
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
 * table, so there are few. Suppressed lines are always counted: the next line has their number, and if none follows
 * for a while, `report` is called.
 */
export class LogLimiter {
  readonly #clock: Clock;
  readonly #report: (kind: string, suppressed: number) => void;
  readonly #buckets = new Map<string, Bucket>();

  constructor(clock: Clock, report: (kind: string, suppressed: number) => void) {
    this.#clock = clock;
    this.#report = report;
  }

  /** Undefined: suppress the line. A number: write it, with the number of lines suppressed before. */
  take(kind: string): number | undefined {
    const now = this.#clock.now();
    let bucket = this.#buckets.get(kind);
    if (bucket === undefined) {
      bucket = { tokens: BURST, at: now, suppressed: 0, timer: undefined };
      this.#buckets.set(kind, bucket);
    }
    bucket.tokens = Math.min(BURST, bucket.tokens + (now - bucket.at) / 1000);
    bucket.at = now;
    if (bucket.tokens < 1) {
      bucket.suppressed += 1;
      bucket.timer ??= this.#clock.setTimer(REPORT_AFTER_MS, () => this.#flush(kind, bucket));
      return undefined;
    }
    bucket.tokens -= 1;
    const { suppressed } = bucket;
    bucket.suppressed = 0;
    return suppressed;
  }

  /** Reports suppressed lines and stops the timers. */
  close(): void {
    for (const [kind, bucket] of this.#buckets) this.#flush(kind, bucket);
  }

  #flush(kind: string, bucket: Bucket): void {
    bucket.timer?.cancel();
    bucket.timer = undefined;
    if (bucket.suppressed === 0) return;
    this.#report(kind, bucket.suppressed);
    bucket.suppressed = 0;
  }
}
