import type { PortalSpec } from '../portal/portal.ts';
import type { ListenSpec } from '../proxysocket/spec.ts';
import { Subscriptions, type TypedChannel } from '../util/channel.ts';
import { systemClock, type Clock, type Timer } from '../util/clock.ts';
import { formatHostPort } from '../util/host-port.ts';
import { conditionOf, valueAt } from './channels.ts';
import type { AdjustableLog, Log, LogKeys } from './log.ts';

/** What an event has in the log. */
export interface LogRule {
  /** Minimum verbosity; 0: always needed. */
  readonly v: number;
  subscribe(subscriptions: Subscriptions, log: Log, limiter: LogLimiter): void;
}

/** `CONDITIONS: SEVERITY VERBOSITY limited: MESSAGE | FIELDS`; all but severity and message may be missing. */
const ROW = /^(.*?): (error|warn|info)(?: (\d))?( limited)?: (.*?)(?: \| (.*))?$/;

/**
 * A log line for an event.
 *
 * - Conditions: see `conditionOf`.
 * - `limited`: many clients could cause it, so below `-v=3` its rate is limited.
 * - Fields, separated by commas, have a key of their name, with the exceptions of `KEY_NAMES`; `field:key` uses another
 * one, `key=text` is constant. Those that are undefined or empty are left out, lists are logged as their length, times in
 * milliseconds rounded, with `~` to tenths; the key `seconds` has them in seconds.
 * - `field.part` is a field of a field.
 *
 * `keys` makes the keys instead; a list makes a line of each of its items.
 */
export function rule<Event extends object>(
  channel: TypedChannel<Event>,
  row: string,
  keys?: (event: Event) => LogKeys | readonly LogKeys[],
): LogRule {
  const [, conditions = '', level, v = '0', limited, message = '', fields] = ROW.exec(row) ?? [];
  const severity = level as 'error' | 'warn' | 'info';
  const holds = conditionOf(conditions);
  const keysOf = keys ?? keysOfFields(fields?.split(', ') ?? []);
  const write = (log: Log, limiter: LogLimiter, event: Event): void => {
    if (!holds(event)) return;
    for (const line of [keysOf(event)].flat()) {
      const isLimited = limited !== undefined && log.verbosity < UNLIMITED_FROM;
      const suppressed = isLimited ? limiter.take(message) : 0;
      if (suppressed === undefined) continue;
      const all = suppressed > 0 ? { ...line, suppressed } : line;
      if (severity !== 'info') log[severity](message, all);
      else if (v === '0') log.info(message, all);
      else log.v(Number(v), message, all);
    }
  };
  return {
    v: Number(v),
    subscribe(subscriptions, log, limiter) {
      subscriptions.on(channel, (event) => write(log, limiter, event));
    },
  };
}

const KEY_NAMES: Readonly<Record<string, string>> = {
  servicePort: 'servicePortName',
  error: 'err',
  peer: 'client',
  nodeName: 'node',
  origin: 'config',
  durationMs: 'ms',
};

/** Fields with several keys, or a form of their own. */
const FORMATS: Readonly<Record<string, (value: never) => LogKeys>> = {
  listen: ({ address, port, traffic }: ListenSpec) => {
    return { address: formatHostPort({ host: address, port }), traffic };
  },
  portals: (portals: readonly PortalSpec[]) => ({ addresses: portals.map(portalText) }),
  validUntil: (at: number) => ({ validUntil: new Date(at).toISOString() }),
};

function portalText({ kind, address, port }: PortalSpec): string {
  return `${kind} ${address === undefined ? `:${port}` : formatHostPort({ host: address, port })}`;
}

const FIELD = /^([\w.]+)(~?)(?::(\w+))?(?:=(.*))?$/;

function keysOfFields(fields: readonly string[]): (event: object) => LogKeys {
  return (event) => {
    const keys: Record<string, unknown> = {};
    for (const field of fields) {
      const [, path = '', tenths, name, constant] = FIELD.exec(field) ?? [];
      const key = name ?? KEY_NAMES[path] ?? path;
      const value = constant ?? valueAt(event, path);
      if (value === undefined || value === '') continue;
      if (FORMATS[path] !== undefined) Object.assign(keys, FORMATS[path](value as never));
      else if (Array.isArray(value)) keys[key] = value.length;
      else if (typeof value === 'number' && path.endsWith('Ms')) {
        const parts = tenths === '' ? 1 : 10;
        keys[key] = Math.round(value * parts) / parts / (key === 'seconds' ? 1000 : 1);
      } else keys[key] = value;
    }
    return keys;
  };
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
