import { exponentialBuckets, linearBuckets } from 'prom-client';
import * as config from '../config/events.ts';
import * as file from '../file/events.ts';
import * as kube from '../kube/events.ts';
import * as portal from '../portal/events.ts';
import * as proxier from '../proxier/events.ts';
import { dataPlaneFault } from '../proxysocket/events.ts';
import * as server from '../server/events.ts';
import { calloutEnded } from '../sinks/events.ts';
import * as store from '../store/events.ts';
import type { TypedChannel } from '../util/channel.ts';
import { httpLimitReached } from '../util/http-limits.ts';
import {
  counter,
  each,
  gauge,
  histogram,
  level,
  on,
  recorded,
  snapshot,
  zero,
} from './metric-table.ts';

/** kube-proxy's buckets for sync times: 1 ms and 14 doublings. Seconds. */
const SYNC_BUCKETS = exponentialBuckets(0.001, 2, 15);

/** kube-proxy's buckets: two quarters of a second, each second of a minute, then coarser up to 5 minutes. Seconds. */
const PROGRAMMING_BUCKETS = [
  ...linearBuckets(0.25, 0.25, 2),
  ...linearBuckets(1, 1, 59),
  ...linearBuckets(60, 5, 12),
  ...linearBuckets(120, 30, 7),
];

/**
 * Metrics updated by events. Those of kube-proxy and kpng keep their names. `now`: milliseconds since the epoch;
 * `monotonic`: of a clock that only runs forward.
 */
export function eventMetrics(now = Date.now, monotonic = () => performance.now()) {
  const programming = new ProgrammingTimes();
  const heardAt = new Map<string, number>();
  const seconds = (): number => now() / 1000;
  const heard = <Event extends { readonly resource: string }>(channel: TypedChannel<Event>) =>
    on(channel, ({ resource }) => void heardAt.set(resource, monotonic()));
  const perApi = zero('api', ['local', 'global']);
  return {
    kpng_userspace_source_connected: gauge(
      '1 while the server is connected, or the state file is valid.',
      on(store.sourceConnected),
      on(store.sourceDisconnected, 0),
      on(file.fileLoaded),
      on(file.fileRecovered),
      on(file.fileInvalid, 0),
      on(file.fileReadFailed, 0),
    ),
    kpng_userspace_source_connects_total: counter(
      'Connections to the source established; all but the first are reconnects.',
      on(store.sourceConnected),
    ),
    kpng_userspace_source_failures_total: counter(
      'Connections to the source lost, and failed attempts to connect.',
      on(store.sourceDisconnected),
    ),
    kpng_userspace_source_syncs_total: counter(
      'Complete change sets received from the source.',
      on(store.sourceSynced),
    ),
    kpng_userspace_source_last_sync_timestamp_seconds: gauge(
      'When the last complete change set was received.',
      on(store.sourceSynced, seconds),
    ),
    kpng_userspace_source_services: gauge(
      'Services in the state of the source.',
      on(store.sourceSynced, ({ services }) => services),
    ),
    kpng_userspace_source_invalid_ops_total: counter(
      'Invalid items from the source, skipped.',
      on(store.opInvalid),
    ),
    kpng_userspace_file_loads_total: counter('Valid state files loaded.', on(file.fileLoaded)),
    kpng_userspace_file_failures_total: counter(
      'State files that could not be read or were invalid, by code.',
      on(file.fileInvalid, 1, 'error'),
      on(file.fileReadFailed, 1, 'error'),
    ),
    kpng_userspace_file_last_load_timestamp_seconds: gauge(
      'When a valid state file was last loaded.',
      on(file.fileLoaded, seconds),
    ),
    kpng_userspace_sink_failures_total: counter(
      'Change sets that failed to apply; they are retried.',
      on(store.sinkFailed),
    ),
    kubeproxy_sync_proxy_rules_duration_seconds: histogram(SYNC_BUCKETS)(
      'Time to apply a change set.',
      on(proxier.proxierSynced, ({ durationMs }) => durationMs / 1000),
    ),
    kubeproxy_sync_proxy_rules_last_timestamp_seconds: gauge(
      'When a change set was last applied.',
      on(proxier.proxierSynced, seconds),
    ),
    kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds: gauge(
      'When a change set was last received.',
      on(store.sourceSynced, seconds),
    ),
    kubeproxy_sync_proxy_rules_service_changes_pending: gauge(
      'Services with changes that are not applied yet, their endpoints included.',
      on(store.sourceSynced, ({ changed }) => changed),
      on(proxier.proxierSynced, 0),
    ),
    kubeproxy_sync_proxy_rules_service_changes_total: counter(
      'Service ports added, changed or removed.',
      on(proxier.proxierSynced, ({ added, changed, removed }) => added + changed + removed),
    ),
    kubeproxy_sync_proxy_rules_endpoint_changes_total: counter(
      'Service ports of which only the endpoints changed.',
      on(proxier.proxierSynced, ({ endpointsChanged }) => endpointsChanged),
    ),
    kubeproxy_sync_proxy_rules_no_local_endpoints_total: gauge(
      'Services with a Local traffic policy and no endpoint for it, by policy.',
      recorded('traffic_policy'),
    ),
    kubeproxy_network_programming_duration_seconds: histogram(PROGRAMMING_BUCKETS)(
      'Time from a change of endpoints in the cluster until it is applied here.',
      on(kube.kubeTriggered, ({ times }) => programming.triggered(times, now())),
      on(store.sourceSynced, () => programming.received(now())),
      each(proxier.proxierSynced, [], () =>
        programming.applied(now()).map((ms) => [ms / 1000] as const),
      ),
    ),
    kpng_userspace_sync_failures_total: counter(
      'Change sets that could not be applied.',
      on(proxier.proxierSyncFailed),
    ),
    kpng_userspace_service_ports: gauge(
      'Service ports that are proxied.',
      on(proxier.proxierSynced, ({ servicePorts }) => servicePorts),
    ),
    kpng_userspace_problems_total: counter(
      'Problems that kept a part of the state from being proxied, by code.',
      on(proxier.problemChanged, ({ kind }) => (kind === 'appeared' ? 1 : undefined), 'problem'),
    ),
    kpng_userspace_config_reloads_total: counter(
      'Reloads of the configuration file.',
      each(config.configReloaded, ['result'], () => [[1, { result: 'ok' }]]),
      each(config.configFailed, ['result'], () => [[1, { result: 'failed' }]]),
    ),
    kpng_userspace_config_last_reload_timestamp_seconds: gauge(
      'When a valid configuration file was last reloaded.',
      on(config.configReloaded, seconds),
    ),
    kpng_userspace_config_pending_settings: gauge(
      'Settings of the configuration file that take effect only after a restart.',
      on(config.configReloaded, ({ refused }) => refused.length),
    ),
    kpng_userspace_source_last_event_age_seconds: gauge(
      'Time since the last event of the source, bookmarks included.',
      heard(kube.kubeReceived),
      heard(kube.kubeListed),
      heard(kube.kubeWatching),
      snapshot(['resource'], () =>
        [...heardAt].map(([resource, at]) => [(monotonic() - at) / 1000, { resource }]),
      ),
    ),
    kpng_userspace_kube_events_total: counter(
      'Watch events.',
      each(kube.kubeReceived, ['resource', 'type'], ({ resource, bookmarks, ...counts }) =>
        Object.entries({ ...counts, bookmark: bookmarks })
          .filter(([, count]) => count > 0)
          .map(([type, count]) => [count, { resource, type }]),
      ),
    ),
    kpng_userspace_kube_watches_total: counter(
      'Watches opened.',
      on(kube.kubeWatching, 1, 'resource'),
    ),
    kpng_userspace_kube_lists_total: counter(
      'Complete lists of a resource, by cause.',
      on(kube.kubeListed, 1, 'resource', 'why:cause'),
    ),
    kpng_userspace_kube_failures_total: counter(
      'Failed lists and watches, by cause.',
      on(kube.kubeFailed, 1, 'resource', 'kind:cause'),
    ),
    kpng_userspace_kube_orphan_slices: gauge(
      'EndpointSlices whose Service does not exist, or is not for this proxy.',
      on(kube.kubeOrphans, ({ count }) => count),
    ),
    kpng_userspace_api_watchers: level(
      'Clients that watch now.',
      perApi,
      on(server.watchStarted, 1, 'api'),
      on(server.watchEnded, -1, 'api'),
    ),
    kpng_userspace_api_watches_total: counter(
      'Watch calls started.',
      perApi,
      on(server.watchStarted, 1, 'api'),
    ),
    kpng_userspace_api_change_sets_total: counter(
      'Change sets sent to clients, counted when their call ends.',
      perApi,
      on(server.watchEnded, ({ syncs }) => syncs, 'api'),
    ),
    kpng_userspace_api_lagging_total: counter(
      'Watch calls ended because the client lagged too far behind.',
      on(server.watchEnded, ({ error }) => (error?.code === 'KPNG_LIMIT_REACHED' ? 1 : undefined)),
    ),
    kpng_userspace_api_refused_total: counter(
      'Clients refused because of a limit.',
      on(server.serverLimitReached, 1, 'limit'),
    ),
    kpng_userspace_api_handshake_failures_total: counter(
      'Failed TLS handshakes.',
      on(server.handshakeFailed),
    ),
    kpng_k8s_api_events_total: counter(
      'Writes of a source to the state of the cluster, whether they changed anything or not.',
      on(store.storeWritten),
    ),
    kpng_node_local_events_total: counter(
      'Operations sent to clients of both APIs and to the backend of this process.',
      on(store.sourceSynced, ({ operations = 0 }) => operations),
      on(server.operationsSent, ({ operations }) => operations),
    ),
    kpng_userspace_callout_runs_total: counter(
      'Runs of the callout, by result.',
      on(calloutEnded, 1, 'result'),
    ),
    kpng_userspace_callout_last_success_timestamp_seconds: gauge(
      'When the callout last succeeded.',
      on(calloutEnded, ({ result }) => (result === 'ok' ? seconds() : undefined)),
    ),
    kpng_userspace_callout_last_duration_seconds: gauge(
      'Duration of the last run of the callout.',
      on(calloutEnded, ({ durationMs }) => durationMs / 1000),
    ),
    kpng_userspace_portal_up: gauge(
      '1 while the packet rules, or the addresses on the interface, are as they should be.',
      on(portal.portalWritten, 1, 'portal'),
      // An invalid service port does not make the portal fail.
      on(
        portal.portalFailed,
        ({ error }) => (error.servicePort === undefined ? 0 : undefined),
        'portal',
      ),
      on(portal.portalLost, 0, 'portal'),
    ),
    kpng_userspace_portal_writes_total: counter(
      'Transactions that changed packet rules or addresses, by reason.',
      on(portal.portalWritten, 1, 'portal', 'reason'),
    ),
    kpng_userspace_portal_failures_total: counter(
      'Failed writes of packet rules or addresses.',
      on(portal.portalFailed, 1, 'portal', 'error'),
    ),
    kpng_userspace_portal_lost_total: counter(
      'Times that another program removed or changed packet rules or addresses.',
      on(portal.portalLost, 1, 'portal'),
    ),
    kpng_userspace_portal_shared: gauge(
      '1 while another process redirects the same traffic with packet rules of another kind.',
      on(portal.portalShared, ({ error }) => (error === undefined ? 0 : 1), 'portal'),
    ),
    kpng_userspace_portal_last_write_duration_seconds: gauge(
      'Duration of the last transaction that changed packet rules or addresses.',
      on(portal.portalWritten, ({ durationMs }) => durationMs / 1000, 'portal'),
    ),
    kpng_userspace_portal_flow_failures_total: counter(
      'Failed attempts to remove stale UDP conntrack entries.',
      on(portal.flowsNotCleared, 1, 'portal', 'error'),
    ),
    kpng_userspace_engine_faults_total: counter(
      'Faults inside the engine: crashed threads, and errors that closed a connection.',
      on(dataPlaneFault, 1, 'what'),
    ),
    kpng_userspace_http_limit_reached_total: counter(
      'HTTP connections closed because a limit was reached.',
      on(httpLimitReached, 1, 'limit'),
    ),
  };
}

/** Maximum number of pending changes; more are not measured. */
const MAX_WAITING = 10_000;
/** A change without a change set for this long does not concern this node. Milliseconds. */
const NO_EFFECT_MS = 1000;

/**
 * Measures the time from a change in the cluster until it is applied here. All times are milliseconds since the
 * epoch.
 */
class ProgrammingTimes {
  #waiting: { readonly at: number; readonly receivedAt: number }[] = [];
  /** Times of the changes that are being applied. */
  #applying: number[] = [];
  #appliedAt = Number.NEGATIVE_INFINITY;

  /** Endpoints were changed in the cluster at these times, by the clocks there. */
  triggered(times: readonly number[], now: number): void {
    for (const at of times) {
      if (this.#waiting.length < MAX_WAITING) this.#waiting.push({ at, receivedAt: now });
    }
  }

  /** A change set has been received. */
  received(now: number): void {
    const arrived = this.#waiting.filter(
      ({ receivedAt }) => now - Math.max(receivedAt, this.#appliedAt) < NO_EFFECT_MS,
    );
    this.#applying = [...this.#applying, ...arrived.map(({ at }) => at)].slice(0, MAX_WAITING);
    this.#waiting = [];
  }

  /** All received changes are applied. Returns how long each took, in milliseconds. */
  applied(now: number): number[] {
    this.#appliedAt = now;
    const made = this.#applying;
    this.#applying = [];
    return made.map((at) => Math.max(0, now - at));
  }
}
