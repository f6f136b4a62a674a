import type { Registry } from 'prom-client';
import * as config from '../config/events.ts';
import * as file from '../file/events.ts';
import * as kube from '../kube/events.ts';
import * as portal from '../portal/events.ts';
import * as proxier from '../proxier/events.ts';
import { dataPlaneFault } from '../proxysocket/events.ts';
import * as server from '../server/events.ts';
import { calloutEnded } from '../sinks/events.ts';
import * as store from '../store/events.ts';
import { httpLimitReached } from '../util/http-limits.ts';
import { counter, gauge, histogram, registerTable } from './metric-table.ts';
import { PROGRAMMING_BUCKETS, ProgrammingTimes } from './programming-times.ts';
import type { Subscriptions } from '../util/channel.ts';

/** kube-proxy's buckets for sync times: 1 ms and 14 doublings. Seconds. */
const SYNC_BUCKETS = Array.from({ length: 15 }, (_, power) => 0.001 * 2 ** power);

/** Metrics updated by events. Those of kube-proxy and kpng keep their names. */
const TABLE = {
  kpng_userspace_source_connected: gauge(
    '1 while the server is connected, or the state file is valid.',
  ),
  kpng_userspace_source_connects_total: counter(
    'Connections to the source established; all but the first are reconnects.',
  ),
  kpng_userspace_source_failures_total: counter(
    'Connections to the source lost, and failed attempts to connect.',
  ),
  kpng_userspace_source_syncs_total: counter('Complete change sets received from the source.'),
  kpng_userspace_source_last_sync_timestamp_seconds: gauge(
    'When the last complete change set was received.',
  ),
  kpng_userspace_source_services: gauge('Services in the state of the source.'),
  kpng_userspace_source_invalid_ops_total: counter('Invalid items from the source, skipped.'),
  kpng_userspace_sink_failures_total: counter(
    'Change sets that failed to apply; they are retried.',
  ),
  kpng_userspace_file_loads_total: counter('Valid state files loaded.'),
  kpng_userspace_file_failures_total: counter(
    'State files that could not be read or were invalid, by code.',
    'code',
  ),
  kpng_userspace_file_last_load_timestamp_seconds: gauge(
    'When a valid state file was last loaded.',
  ),
  kpng_userspace_config_reloads_total: counter('Reloads of the configuration file.', 'result'),
  kpng_userspace_config_last_reload_timestamp_seconds: gauge(
    'When a valid configuration file was last reloaded.',
  ),
  kpng_userspace_config_pending_settings: gauge(
    'Settings of the configuration file that take effect only after a restart.',
  ),
  kubeproxy_sync_proxy_rules_duration_seconds: histogram(
    'Time to apply a change set.',
    SYNC_BUCKETS,
  ),
  kubeproxy_sync_proxy_rules_last_timestamp_seconds: gauge('When a change set was last applied.'),
  kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds: gauge(
    'When a change set was last received.',
  ),
  kubeproxy_sync_proxy_rules_service_changes_pending: gauge(
    'Services with changes that are not applied yet, their endpoints included.',
  ),
  kubeproxy_sync_proxy_rules_service_changes_total: counter(
    'Service ports added, changed or removed.',
  ),
  kubeproxy_sync_proxy_rules_endpoint_changes_total: counter(
    'Service ports of which only the endpoints changed.',
  ),
  kubeproxy_network_programming_duration_seconds: histogram(
    'Time from a change of endpoints in the cluster until it is applied here.',
    PROGRAMMING_BUCKETS,
  ),
  kpng_userspace_sync_failures_total: counter('Change sets that could not be applied.'),
  kpng_userspace_service_ports: gauge('Service ports that are proxied.'),
  kpng_userspace_problems_total: counter(
    'Problems that kept a part of the state from being proxied, by code.',
    'code',
  ),
  kpng_userspace_kube_events_total: counter('Watch events.', 'resource', 'type'),
  kpng_userspace_kube_lists_total: counter(
    'Complete lists of a resource, by cause.',
    'resource',
    'cause',
  ),
  kpng_userspace_kube_watches_total: counter('Watches opened.', 'resource'),
  kpng_userspace_kube_failures_total: counter(
    'Failed lists and watches, by cause.',
    'resource',
    'cause',
  ),
  kpng_userspace_kube_orphan_slices: gauge(
    'EndpointSlices whose Service does not exist, or is not for this proxy.',
  ),
  kpng_userspace_source_last_event_age_seconds: gauge(
    'Time since the last event of the source, bookmarks included.',
    'resource',
  ),
  kpng_userspace_api_watchers: gauge('Clients that watch now.', 'api'),
  kpng_userspace_api_watches_total: counter('Watch calls started.', 'api'),
  kpng_userspace_api_change_sets_total: counter(
    'Change sets sent to clients, counted when their call ends.',
    'api',
  ),
  kpng_userspace_api_lagging_total: counter(
    'Watch calls ended because the client lagged too far behind.',
  ),
  kpng_userspace_api_refused_total: counter('Clients refused because of a limit.', 'limit'),
  kpng_userspace_api_handshake_failures_total: counter('Failed TLS handshakes.'),
  kpng_k8s_api_events_total: counter(
    'Writes of a source to the state of the cluster, whether they changed anything or not.',
  ),
  kpng_node_local_events_total: counter(
    'Operations sent to clients of both APIs and to the backend of this process.',
  ),
  kpng_userspace_callout_runs_total: counter('Runs of the callout, by result.', 'result'),
  kpng_userspace_callout_last_success_timestamp_seconds: gauge('When the callout last succeeded.'),
  kpng_userspace_callout_last_duration_seconds: gauge('Duration of the last run of the callout.'),
  kpng_userspace_portal_up: gauge(
    '1 while the packet rules, or the addresses on the interface, are as they should be.',
    'portal',
  ),
  kpng_userspace_portal_writes_total: counter(
    'Transactions that changed packet rules or addresses, by reason.',
    'portal',
    'reason',
  ),
  kpng_userspace_portal_failures_total: counter(
    'Failed writes of packet rules or addresses.',
    'portal',
    'code',
  ),
  kpng_userspace_portal_lost_total: counter(
    'Times that another program removed or changed packet rules or addresses.',
    'portal',
  ),
  kpng_userspace_portal_shared: gauge(
    '1 while another process redirects the same traffic with packet rules of another kind.',
    'portal',
  ),
  kpng_userspace_portal_last_write_duration_seconds: gauge(
    'Duration of the last transaction that changed packet rules or addresses.',
    'portal',
  ),
  kpng_userspace_portal_flow_failures_total: counter(
    'Failed attempts to remove stale UDP conntrack entries.',
    'portal',
    'code',
  ),
  kpng_userspace_engine_faults_total: counter(
    'Faults inside the engine: crashed threads, and errors that closed a connection.',
    'what',
  ),
  kpng_userspace_http_limit_reached_total: counter(
    'HTTP connections closed because a limit was reached.',
    'limit',
  ),
};

export interface MetricClocks {
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Milliseconds of a monotonic clock. */
  readonly monotonic: () => number;
}

const CLOCKS: MetricClocks = { now: Date.now, monotonic: () => performance.now() };

/** Registers the event metrics. Returns a function that updates the time-dependent ones. */
export function addEventMetrics(
  registry: Registry,
  subscriptions: Subscriptions,
  { now, monotonic }: MetricClocks = CLOCKS,
): () => void {
  const all = registerTable(registry, TABLE);
  const on: Subscriptions['on'] = (channel, listener) => subscriptions.on(channel, listener);
  const seconds = (): number => now() / 1000;

  on(store.sourceConnected, () => {
    all.kpng_userspace_source_connected.set(1);
    all.kpng_userspace_source_connects_total.inc();
  });
  on(store.sourceDisconnected, () => {
    all.kpng_userspace_source_connected.set(0);
    all.kpng_userspace_source_failures_total.inc();
  });
  on(store.storeWritten, () => all.kpng_k8s_api_events_total.inc());
  on(store.opInvalid, () => all.kpng_userspace_source_invalid_ops_total.inc());
  on(store.sinkFailed, () => all.kpng_userspace_sink_failures_total.inc());

  const fileFailed = ({ error }: { error: { code: string } }): void => {
    all.kpng_userspace_source_connected.set(0);
    all.kpng_userspace_file_failures_total.inc({ code: error.code });
  };
  on(file.fileInvalid, fileFailed);
  on(file.fileReadFailed, fileFailed);
  on(file.fileRecovered, () => all.kpng_userspace_source_connected.set(1));
  on(file.fileLoaded, () => {
    all.kpng_userspace_source_connected.set(1);
    all.kpng_userspace_file_loads_total.inc();
    all.kpng_userspace_file_last_load_timestamp_seconds.set(seconds());
  });

  on(config.configFailed, () => all.kpng_userspace_config_reloads_total.inc({ result: 'failed' }));
  on(config.configReloaded, ({ refused }) => {
    all.kpng_userspace_config_reloads_total.inc({ result: 'ok' });
    all.kpng_userspace_config_last_reload_timestamp_seconds.set(seconds());
    all.kpng_userspace_config_pending_settings.set(refused.length);
  });

  const programming = new ProgrammingTimes();
  on(kube.kubeTriggered, ({ times }) => programming.triggered(times, now()));
  on(store.sourceSynced, ({ services, changed, operations = 0 }) => {
    all.kpng_userspace_source_syncs_total.inc();
    all.kpng_userspace_source_last_sync_timestamp_seconds.set(seconds());
    all.kpng_userspace_source_services.set(services);
    all.kpng_node_local_events_total.inc(operations);
    all.kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds.set(seconds());
    all.kubeproxy_sync_proxy_rules_service_changes_pending.set(changed);
    programming.received(now());
  });
  on(proxier.proxierSynced, (event) => {
    all.kubeproxy_sync_proxy_rules_duration_seconds.observe(event.durationMs / 1000);
    all.kubeproxy_sync_proxy_rules_last_timestamp_seconds.set(seconds());
    all.kpng_userspace_service_ports.set(event.servicePorts);
    all.kubeproxy_sync_proxy_rules_service_changes_pending.set(0);
    const { added, changed, removed, endpointsChanged } = event;
    all.kubeproxy_sync_proxy_rules_service_changes_total.inc(added + changed + removed);
    all.kubeproxy_sync_proxy_rules_endpoint_changes_total.inc(endpointsChanged);
    for (const ms of programming.applied(now()))
      all.kubeproxy_network_programming_duration_seconds.observe(ms / 1000);
  });
  on(proxier.proxierSyncFailed, () => all.kpng_userspace_sync_failures_total.inc());
  on(proxier.problemChanged, ({ kind, problem: { code } }) => {
    if (kind === 'appeared') all.kpng_userspace_problems_total.inc({ code });
  });

  const heardAt = new Map<string, number>();
  on(kube.kubeReceived, ({ resource, bookmarks, ...counts }) => {
    heardAt.set(resource, monotonic());
    for (const [type, count] of Object.entries({ ...counts, bookmark: bookmarks })) {
      if (count > 0) all.kpng_userspace_kube_events_total.inc({ resource, type }, count);
    }
  });
  on(kube.kubeListed, ({ resource, why }) => {
    heardAt.set(resource, monotonic());
    all.kpng_userspace_kube_lists_total.inc({ resource, cause: why });
  });
  on(kube.kubeWatching, ({ resource }) => {
    heardAt.set(resource, monotonic());
    all.kpng_userspace_kube_watches_total.inc({ resource });
  });
  on(kube.kubeFailed, ({ resource, kind }) =>
    all.kpng_userspace_kube_failures_total.inc({ resource, cause: kind }),
  );
  on(kube.kubeOrphans, ({ count }) => all.kpng_userspace_kube_orphan_slices.set(count));

  for (const api of ['local', 'global'] as const) {
    all.kpng_userspace_api_watchers.set({ api }, 0);
    all.kpng_userspace_api_watches_total.inc({ api }, 0);
    all.kpng_userspace_api_change_sets_total.inc({ api }, 0);
  }
  on(server.watchStarted, ({ api }) => {
    all.kpng_userspace_api_watchers.inc({ api });
    all.kpng_userspace_api_watches_total.inc({ api });
  });
  on(server.watchEnded, ({ api, syncs, error }) => {
    all.kpng_userspace_api_watchers.dec({ api });
    all.kpng_userspace_api_change_sets_total.inc({ api }, syncs);
    if (error?.code === 'KPNG_LIMIT_REACHED') all.kpng_userspace_api_lagging_total.inc();
  });
  on(server.serverLimitReached, ({ limit }) => all.kpng_userspace_api_refused_total.inc({ limit }));
  on(server.handshakeFailed, () => all.kpng_userspace_api_handshake_failures_total.inc());
  on(server.operationsSent, ({ operations }) => all.kpng_node_local_events_total.inc(operations));

  on(calloutEnded, ({ result, durationMs }) => {
    all.kpng_userspace_callout_runs_total.inc({ result });
    all.kpng_userspace_callout_last_duration_seconds.set(durationMs / 1000);
    if (result === 'ok') all.kpng_userspace_callout_last_success_timestamp_seconds.set(seconds());
  });

  on(portal.portalWritten, ({ portal: kind, reason, durationMs }) => {
    all.kpng_userspace_portal_up.set({ portal: kind }, 1);
    all.kpng_userspace_portal_writes_total.inc({ portal: kind, reason });
    all.kpng_userspace_portal_last_write_duration_seconds.set({ portal: kind }, durationMs / 1000);
  });
  on(portal.portalFailed, ({ portal: kind, error: { code, servicePort } }) => {
    all.kpng_userspace_portal_failures_total.inc({ portal: kind, code });
    // An invalid service port does not make the portal fail.
    if (servicePort === undefined) all.kpng_userspace_portal_up.set({ portal: kind }, 0);
  });
  on(portal.portalLost, ({ portal: kind }) => {
    all.kpng_userspace_portal_up.set({ portal: kind }, 0);
    all.kpng_userspace_portal_lost_total.inc({ portal: kind });
  });
  on(portal.portalShared, ({ portal: kind, error }) =>
    all.kpng_userspace_portal_shared.set({ portal: kind }, error === undefined ? 0 : 1),
  );
  on(portal.flowsNotCleared, ({ portal: kind, error: { code } }) =>
    all.kpng_userspace_portal_flow_failures_total.inc({ portal: kind, code }),
  );

  on(dataPlaneFault, ({ what }) => all.kpng_userspace_engine_faults_total.inc({ what }));
  on(httpLimitReached, ({ limit }) => all.kpng_userspace_http_limit_reached_total.inc({ limit }));

  return () => {
    const age = all.kpng_userspace_source_last_event_age_seconds;
    for (const [resource, at] of heardAt) age.set({ resource }, (monotonic() - at) / 1000);
  };
}
