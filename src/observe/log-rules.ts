import type { TypedChannel } from '../util/channel.ts';
import { systemClock, type Clock } from '../util/clock.ts';
import { LogLimiter } from './log-limiter.ts';
import type { AdjustableLog, Log, LogKeys } from './log.ts';
import { Subscriptions } from './subscriptions.ts';

/** One line of the table that maps events to log lines. */
export interface LogRuleSpec<Event extends object> {
  readonly channel: TypedChannel<Event>;
  readonly severity: 'error' | 'warn' | 'info';
  /** The line appears from this verbosity on; 0: always. */
  readonly v: number;
  /** Undefined: this event is not worth a line. */
  readonly message: string | ((event: Event) => string | undefined);
  /** A list makes one line of each. */
  readonly keys: (event: Event) => LogKeys | readonly LogKeys[];
  /** Set for lines that many clients could cause: below `-v=3` they are rate limited. */
  readonly limited?: true;
}

/** A line of the table, of whatever event. */
export interface LogRule {
  readonly v: number;
  /** Starts writing lines. */
  subscribe(subscriptions: Subscriptions, log: Log, limiter: LogLimiter): void;
}

export function logRule<Event extends object>(spec: LogRuleSpec<Event>): LogRule {
  return {
    v: spec.v,
    subscribe(subscriptions, log, limiter) {
      subscriptions.on(spec.channel, (event) => write(log, limiter, spec, event));
    },
  };
}

/** From this verbosity on everything about every connection is wanted. */
const UNLIMITED_FROM = 3;

/**
 * Writes log lines for events by a table. Only channels that a line at this verbosity needs are
 * subscribed to, so that an event costs nothing when nobody will read of it; a change of the
 * verbosity changes the subscriptions. Returns the function that ends it.
 */
export function subscribeLog(
  log: AdjustableLog,
  rules: readonly LogRule[],
  clock: Clock = systemClock,
): () => void {
  const limiter = new LogLimiter({
    clock,
    report: (kind, suppressed) => log.warn('Log lines were held back', { line: kind, suppressed }),
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

function write<Event extends object>(
  log: Log,
  limiter: LogLimiter,
  spec: LogRuleSpec<Event>,
  event: Event,
): void {
  const message = typeof spec.message === 'string' ? spec.message : spec.message(event);
  if (message === undefined) return;
  const keys = spec.keys(event);
  for (const each of isList(keys) ? keys : [keys]) writeLine(log, limiter, spec, message, each);
}

function writeLine(
  log: Log,
  limiter: LogLimiter,
  { severity, v, limited }: Pick<LogRuleSpec<never>, 'severity' | 'v' | 'limited'>,
  message: string,
  given: LogKeys,
): void {
  let keys = given;
  if (limited === true && log.verbosity < UNLIMITED_FROM) {
    const suppressed = limiter.take(message);
    if (suppressed === undefined) return;
    if (suppressed > 0) keys = { ...keys, suppressed };
  }
  if (severity !== 'info') log[severity](message, keys);
  else if (v === 0) log.info(message, keys);
  else log.v(v, message, keys);
}

function isList(keys: LogKeys | readonly LogKeys[]): keys is readonly LogKeys[] {
  return Array.isArray(keys);
}
