import * as kube from '../kube/events.ts';
import { proxierSynced } from '../proxier/events.ts';
import { watchEnded, watchStarted } from '../server/events.ts';
import { sourceSynced } from '../store/events.ts';
import type { Subscriptions } from '../util/channel.ts';
import { CHANNELS, conditionOf, valueAt } from './channels.ts';
import { PROCESS_METRICS, type ProcessMetric } from './metric-table.ts';

type Labels = Readonly<Record<string, string>>;

export type Sample = readonly [value: number, labels?: Labels];

/** Adds to a counter, sets a gauge, or is observed by a histogram. */
export type RecordMetric = (name: ProcessMetric, ...sample: Sample) => void;

/**
 * What an event does to a metric: `CHANNEL CONDITIONS =VALUE {label=text}`. Without a value, it is 1; otherwise a number,
 * `now`, or fields whose sum it is. Times in milliseconds count in seconds, lists with their length. Labels come from the
 * fields of the event with their names, or with those of `LABEL_FIELDS`.
 */
const EVENT_RULE = /^(\w+)(?: (.*?))??(?: =([\w+]+))?(?: \{(\w+)=(\w+)\})?$/;

/** Lets events update the metrics of the table. `now`: seconds since the epoch. */
function followTable(subscriptions: Subscriptions, record: RecordMetric, now: () => number): void {
  for (const [key, { labels, events }] of Object.entries(PROCESS_METRICS)) {
    for (const rule of events?.split('; ') ?? []) {
      const [, name, conditions = '', value = '1', label = '', text] = EVENT_RULE.exec(rule) ?? [];
      const holds = conditionOf(conditions);
      const more = text === undefined ? {} : { [label]: text };
      subscriptions.on<object>(CHANNELS[name as 'sinkFailed'], (event) => {
        if (!holds(event)) return;
        const number = value === 'now' ? now() : numberIn(event, value);
        record(key as ProcessMetric, number, { ...labelsOf(event, labels), ...more });
      });
    }
  }
}

function numberIn(event: object, sum: string): number {
  const numbers = sum.split('+').map((part) => {
    const value = /^\d/.test(part) ? part : (valueAt(event, part) ?? 0);
    const number = Array.isArray(value) ? value.length : Number(value);
    return part.endsWith('Ms') ? number / 1000 : number;
  });
  return numbers.reduce((total, each) => total + each, 0);
}

/** Errors and problems give their `code`. */
const LABEL_FIELDS: Readonly<Record<string, readonly string[]>> = {
  code: ['error', 'problem'],
  cause: ['why', 'kind'],
};

function labelsOf(event: object, labels: readonly string[]): Labels {
  const fields = event as Readonly<Record<string, unknown>>;
  return Object.fromEntries(
    labels.flatMap((label) => {
      const found = [label, ...(LABEL_FIELDS[label] ?? [])].map((name) => fields[name]);
      const value = found.find((each) => each !== undefined) as
        string | { code: string } | undefined;
      if (value === undefined) return [];
      return [[label, typeof value === 'string' ? value : value.code]];
    }),
  );
}

/**
 * The metrics that events update, and those that are read from what events have left. `now`: milliseconds since the
 * epoch; `monotonic`: of a clock that only runs forward.
 */
export function eventMetrics(now = Date.now, monotonic = () => performance.now()) {
  const heardAt = new Map<string, number>();
  return {
    subscribe: (subscriptions: Subscriptions, record: RecordMetric): void => {
      followTable(subscriptions, record, () => now() / 1000);
      measureProgramming(subscriptions, record, now);
      for (const channel of [kube.kubeReceived, kube.kubeListed, kube.kubeWatching]) {
        subscriptions.on<{ readonly resource: string }>(channel, ({ resource }) =>
          heardAt.set(resource, monotonic()),
        );
      }
      const watchers = { local: 0, global: 0 };
      for (const api of ['local', 'global'] as const) {
        // Shown as 0 from the start.
        for (const name of ['api_watchers', 'api_watches_total', 'api_change_sets_total'] as const)
          record(name, 0, { api });
      }
      subscriptions.on(watchStarted, ({ api }) => record('api_watchers', ++watchers[api], { api }));
      subscriptions.on(watchEnded, ({ api }) => record('api_watchers', --watchers[api], { api }));
    },
    sourceAges: (): Sample[] =>
      [...heardAt].map(([resource, at]) => [(monotonic() - at) / 1000, { resource }]),
  };
}

/** Maximum number of pending changes; more are not measured. */
const MAX_WAITING = 10_000;
/** A change without a change set for this long does not concern this node. Milliseconds. */
const NO_EFFECT_MS = 1000;

/** Measures the time from a change in the cluster until it is applied here. */
function measureProgramming(
  subscriptions: Subscriptions,
  record: RecordMetric,
  now: () => number,
): void {
  let waiting: { readonly at: number; readonly receivedAt: number }[] = [];
  /** Times of the changes that are being applied. */
  let applying: number[] = [];
  let appliedAt = Number.NEGATIVE_INFINITY;
  // The times at which endpoints were changed in the cluster, by the clocks there.
  subscriptions.on(kube.kubeTriggered, ({ times }) => {
    for (const at of times) {
      if (waiting.length < MAX_WAITING) waiting.push({ at, receivedAt: now() });
    }
  });
  subscriptions.on(sourceSynced, () => {
    const arrived = waiting.filter(
      ({ receivedAt }) => now() - Math.max(receivedAt, appliedAt) < NO_EFFECT_MS,
    );
    applying = [...applying, ...arrived.map(({ at }) => at)].slice(0, MAX_WAITING);
    waiting = [];
  });
  subscriptions.on(proxierSynced, () => {
    appliedAt = now();
    for (const at of applying.splice(0)) {
      const seconds = Math.max(0, appliedAt - at) / 1000;
      record('kubeproxy_network_programming_duration_seconds', seconds);
    }
  });
}
