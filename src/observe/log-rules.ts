import { Subscriptions, type TypedChannel } from '../util/channel.ts';
import { systemClock, type Clock } from '../util/clock.ts';
import { LogLimiter } from './log-limiter.ts';
import type { AdjustableLog, Log, LogKeys } from './log.ts';

/** One line of the tables that map events to log lines. */
export interface LogRule {
  /** Minimum verbosity; 0: always logged. */
  readonly v: number;
  /** Starts writing lines. */
  subscribe(subscriptions: Subscriptions, log: Log, limiter: LogLimiter): void;
}

/** Undefined: the event is not logged. */
type Message<Event> = string | ((event: Event) => string | undefined);

type Field<Event> = (keyof Event & string) | `${keyof Event & string}:${string}`;

/**
 * Fields of the event, `field:key` to use another key, or a function that makes the keys; a list of keys makes one
 * line each.
 */
type Keys<Event> = readonly Field<Event>[] | ((event: Event) => LogKeys | readonly LogKeys[]);

/**
 * The severity of a line and its minimum verbosity, if any. `limited`: many clients could cause it, so below `-v=3`
 * its rate is limited.
 */
export type LogLevel = `${'error' | 'warn' | 'info'}${'' | ` ${1 | 2 | 3 | 4}`}${'' | ' limited'}`;

/**
 * A log line for an event. Keys are named after fields, with the exceptions of `KEY_NAMES`; fields that are undefined or
 * empty are left out, times in milliseconds are rounded.
 */
export function logRule<Event extends object>(
  level: LogLevel,
  channel: TypedChannel<Event>,
  message: Message<Event>,
  keys: Keys<Event>,
): LogRule {
  const [severity, ...rest] = level.split(' ') as ['error' | 'warn' | 'info', ...string[]];
  const isLimited = rest.at(-1) === 'limited';
  const v = Number(rest.find((word) => word !== 'limited') ?? 0);
  const write = (log: Log, limiter: LogLimiter, event: Event): void => {
    const text = typeof message === 'string' ? message : message(event);
    if (text === undefined) return;
    const lines = typeof keys === 'function' ? keys(event) : fieldsOf(event, keys);
    for (const line of isList(lines) ? lines : [lines]) {
      const suppressed = isLimited && log.verbosity < UNLIMITED_FROM ? limiter.take(text) : 0;
      if (suppressed === undefined) continue;
      const all = suppressed > 0 ? { ...line, suppressed } : line;
      if (severity !== 'info') log[severity](text, all);
      else if (v === 0) log.info(text, all);
      else log.v(v, text, all);
    }
  };
  return {
    v,
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

function fieldsOf<Event extends object>(event: Event, fields: readonly Field<Event>[]): LogKeys {
  const keys: Record<string, unknown> = {};
  for (const field of fields) {
    const [name = '', key = KEY_NAMES[name] ?? name] = field.split(':');
    const value: unknown = event[name as keyof Event];
    if (value === undefined || value === '') continue;
    const isTime = typeof value === 'number' && name.endsWith('Ms');
    keys[key] = isTime ? Math.round(value) : value;
  }
  return keys;
}

function isList(keys: LogKeys | readonly LogKeys[]): keys is readonly LogKeys[] {
  return Array.isArray(keys);
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
  const limiter = new LogLimiter({
    clock,
    report: (kind, suppressed) => log.warn('Log lines suppressed', { line: kind, suppressed }),
  });
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
    for (const each of subscriptions.values()) each.end();
    limiter.close();
  };
}
