import * as config from '../config/events.ts';
import * as file from '../file/events.ts';
import * as kube from '../kube/events.ts';
import * as portal from '../portal/events.ts';
import * as proxier from '../proxier/events.ts';
import * as dataPath from '../proxysocket/events.ts';
import * as server from '../server/events.ts';
import { calloutEnded } from '../sinks/events.ts';
import * as store from '../store/events.ts';
import type { Subscriptions, TypedChannel } from '../util/channel.ts';
import { httpLimitReached } from '../util/http-connections.ts';
import { PROCESS_METRICS, type ProcessMetric } from './metric-table.ts';

export type Labels = Readonly<Record<string, string>>;

export type Sample = readonly [value: number, labels?: Labels];

/** Adds to a counter, sets a gauge, or is observed by a histogram. */
export type RecordMetric = (name: ProcessMetric, ...sample: Sample) => void;

type Rule = (subscriptions: Subscriptions, record: RecordMetric) => void;

/**
 * What an event does to metrics: a value or several, or a function that returns them. Labels come from the fields of the
 * event with their names, or with those of `LABEL_FIELDS`.
 */
function on<Event extends object>(
  channel: TypedChannel<Event>,
  updates: Partial<
    Record<ProcessMetric, number | ((event: Event) => number | readonly Sample[] | undefined)>
  >,
): Rule {
  return (subscriptions, record) =>
    subscriptions.on(channel, (event) => {
      for (const [name, update] of Object.entries(updates)) {
        const metric = name as ProcessMetric;
        const found = (typeof update === 'function' ? update(event) : update) ?? [];
        const labels = labelsOf(event, PROCESS_METRICS[metric].labels);
        for (const [value, more] of typeof found === 'number' ? [[found] as const] : found) {
          record(metric, value, { ...labels, ...more });
        }
      }
    });
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
  const programming = programmingTimes(now);
  const heardAt = new Map<string, number>();
  const watchers = { local: 0, global: 0 };
  const seconds = (): number => now() / 1000;
  const heard =
    <Event extends { readonly resource: string }>(channel: TypedChannel<Event>): Rule =>
    (subscriptions) =>
      subscriptions.on(channel, ({ resource }) => heardAt.set(resource, monotonic()));
  const rules: readonly Rule[] = [
    on(store.sourceConnected, { source_connected: 1, source_connects_total: 1 }),
    on(store.sourceDisconnected, { source_connected: 0, source_failures_total: 1 }),
    on(store.sourceSynced, {
      source_syncs_total: 1,
      source_last_sync_timestamp_seconds: seconds,
      source_services: ({ services }) => services,
      kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds: seconds,
      kubeproxy_sync_proxy_rules_service_changes_pending: ({ changed }) => changed,
      kpng_node_local_events_total: ({ operations = 0 }) => operations,
      kubeproxy_network_programming_duration_seconds: () => programming.received(),
    }),
    on(store.opInvalid, { source_invalid_ops_total: 1 }),
    on(store.sinkFailed, { sink_failures_total: 1 }),
    on(store.storeWritten, { kpng_k8s_api_events_total: 1 }),
    on(file.fileLoaded, {
      source_connected: 1,
      file_loads_total: 1,
      file_last_load_timestamp_seconds: seconds,
    }),
    on(file.fileRecovered, { source_connected: 1 }),
    on(file.fileInvalid, { source_connected: 0, file_failures_total: 1 }),
    on(file.fileReadFailed, { source_connected: 0, file_failures_total: 1 }),
    on(proxier.proxierSynced, {
      kubeproxy_sync_proxy_rules_duration_seconds: ({ durationMs }) => durationMs / 1000,
      kubeproxy_sync_proxy_rules_last_timestamp_seconds: seconds,
      kubeproxy_sync_proxy_rules_service_changes_pending: 0,
      kubeproxy_sync_proxy_rules_service_changes_total: ({ added, changed, removed }) =>
        added + changed + removed,
      kubeproxy_sync_proxy_rules_endpoint_changes_total: ({ endpointsChanged }) => endpointsChanged,
      kubeproxy_network_programming_duration_seconds: () => programming.applied(),
      service_ports: ({ servicePorts }) => servicePorts,
    }),
    on(proxier.proxierSyncFailed, { sync_failures_total: 1 }),
    on(proxier.problemChanged, {
      problems_total: ({ kind }) => (kind === 'appeared' ? 1 : undefined),
    }),
    on(config.configReloaded, {
      config_reloads_total: () => [[1, { result: 'ok' }]],
      config_last_reload_timestamp_seconds: seconds,
      config_pending_settings: ({ refused }) => refused.length,
    }),
    on(config.configFailed, { config_reloads_total: () => [[1, { result: 'failed' }]] }),
    on(kube.kubeTriggered, {
      kubeproxy_network_programming_duration_seconds: ({ times }) => programming.triggered(times),
    }),
    heard(kube.kubeReceived),
    heard(kube.kubeListed),
    heard(kube.kubeWatching),
    on(kube.kubeReceived, {
      kube_events_total: ({ added, modified, deleted, bookmarks }) =>
        Object.entries({ added, modified, deleted, bookmark: bookmarks })
          .filter(([, count]) => count > 0)
          .map(([type, count]) => [count, { type }]),
    }),
    on(kube.kubeWatching, { kube_watches_total: 1 }),
    on(kube.kubeListed, { kube_lists_total: 1 }),
    on(kube.kubeFailed, { kube_failures_total: 1 }),
    on(kube.kubeOrphans, { kube_orphan_slices: ({ count }) => count }),
    on(server.watchStarted, {
      api_watchers: ({ api }) => (watchers[api] += 1),
      api_watches_total: 1,
    }),
    on(server.watchEnded, {
      api_watchers: ({ api }) => (watchers[api] -= 1),
      api_change_sets_total: ({ syncs }) => syncs,
      api_lagging_total: ({ error }) => (error?.code === 'KPNG_LIMIT_REACHED' ? 1 : undefined),
    }),
    // Shown as 0 from the start.
    (_, record) => {
      for (const api of Object.keys(watchers)) {
        for (const name of ['api_watchers', 'api_watches_total', 'api_change_sets_total'] as const)
          record(name, 0, { api });
      }
    },
    on(server.serverLimitReached, { api_refused_total: 1 }),
    on(server.handshakeFailed, { api_handshake_failures_total: 1 }),
    on(server.operationsSent, { kpng_node_local_events_total: ({ operations }) => operations }),
    on(calloutEnded, {
      callout_runs_total: 1,
      callout_last_success_timestamp_seconds: ({ result }) =>
        result === 'ok' ? seconds() : undefined,
      callout_last_duration_seconds: ({ durationMs }) => durationMs / 1000,
    }),
    on(portal.portalWritten, {
      portal_up: 1,
      portal_writes_total: 1,
      portal_last_write_duration_seconds: ({ durationMs }) => durationMs / 1000,
    }),
    on(portal.portalFailed, {
      // An invalid service port does not make the portal fail.
      portal_up: ({ error }) => (error.servicePort === undefined ? 0 : undefined),
      portal_failures_total: 1,
    }),
    on(portal.portalLost, { portal_up: 0, portal_lost_total: 1 }),
    on(portal.portalShared, { portal_shared: ({ error }) => (error === undefined ? 0 : 1) }),
    on(portal.flowsNotCleared, { portal_flow_failures_total: 1 }),
    on(dataPath.dataPlaneFault, { engine_faults_total: 1 }),
    on(dataPath.limitChanged, {
      limit_reached_total: ({ reached }) => (reached ? 1 : undefined),
    }),
    on(httpLimitReached, { http_limit_reached_total: 1 }),
  ];
  return {
    subscribe: (subscriptions: Subscriptions, record: RecordMetric): void =>
      rules.forEach((rule) => rule(subscriptions, record)),
    sourceAges: (): Sample[] =>
      [...heardAt].map(([resource, at]) => [(monotonic() - at) / 1000, { resource }]),
  };
}

/** Maximum number of pending changes; more are not measured. */
const MAX_WAITING = 10_000;
/** A change without a change set for this long does not concern this node. Milliseconds. */
const NO_EFFECT_MS = 1000;

/** Measures the time from a change in the cluster until it is applied here. */
function programmingTimes(now: () => number) {
  let waiting: { readonly at: number; readonly receivedAt: number }[] = [];
  /** Times of the changes that are being applied. */
  let applying: number[] = [];
  let appliedAt = Number.NEGATIVE_INFINITY;
  return {
    /** Endpoints were changed in the cluster at these times, by the clocks there. */
    triggered(times: readonly number[]): undefined {
      for (const at of times) {
        if (waiting.length < MAX_WAITING) waiting.push({ at, receivedAt: now() });
      }
    },
    received(): undefined {
      const arrived = waiting.filter(
        ({ receivedAt }) => now() - Math.max(receivedAt, appliedAt) < NO_EFFECT_MS,
      );
      applying = [...applying, ...arrived.map(({ at }) => at)].slice(0, MAX_WAITING);
      waiting = [];
    },
    /** How long each change took. Seconds. */
    applied(): Sample[] {
      appliedAt = now();
      const made = applying;
      applying = [];
      return made.map((at) => [Math.max(0, appliedAt - at) / 1000]);
    },
  };
}
