/** A metric as Prometheus describes it. */
export interface Metric {
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly name: string;
  readonly labels: readonly string[];
  readonly help: string;
  /** What changes it: `EVENT_RULE` in event-metrics.ts, separated by semicolons. */
  readonly events: string | undefined;
}

type NamesIn<Text, Found = never> = Text extends `${string} ${infer Name}: ${string}\n${infer Rest}`
  ? NamesIn<Rest, Found | Short<Name>>
  : Found;
type Short<Name> = Name extends `${infer Plain}{${string}`
  ? Short<Plain>
  : Name extends `kpng_userspace_${infer Rest}`
    ? Rest
    : Name;

const ROW = /^(\w+) (\w+)(?:\{(.*?)\})?: (.*?)(?: <- (.*))?$/gm;

/** Metrics by their names without the prefix of this program. */
function table<const Text extends string>(text: Text) {
  const rows = [...text.matchAll(ROW)].map(([, type, name = '', labels, help = '', events]) => {
    const metric = { type, name, labels: labels?.split(',') ?? [], help, events };
    return [name.replace(/^kpng_userspace_/, ''), metric];
  });
  return Object.fromEntries(rows) as Readonly<Record<NamesIn<Text>, Metric>>;
}

/**
 * Metrics of the process: type, name with labels, help, and after `<-` the events that change it. Those of kube-proxy and
 * kpng keep their names.
 */
export const PROCESS_METRICS = table(`
gauge kpng_userspace_source_connected: 1 while the server is connected, or the state file is valid. <- sourceConnected; fileLoaded; fileRecovered; sourceDisconnected =0; fileInvalid =0; fileReadFailed =0
counter kpng_userspace_source_connects_total: Connections to the source established; all but the first are reconnects. <- sourceConnected
counter kpng_userspace_source_failures_total: Connections to the source lost, and failed attempts to connect. <- sourceDisconnected
counter kpng_userspace_source_syncs_total: Complete change sets received from the source. <- sourceSynced
gauge kpng_userspace_source_last_sync_timestamp_seconds: When the last complete change set was received. <- sourceSynced =now
gauge kpng_userspace_source_services: Services in the state of the source. <- sourceSynced =services
counter kpng_userspace_source_invalid_ops_total: Invalid items from the source, skipped. <- opInvalid
counter kpng_userspace_file_loads_total: Valid state files loaded. <- fileLoaded
counter kpng_userspace_file_failures_total{code}: State files that could not be read or were invalid, by code. <- fileInvalid; fileReadFailed
gauge kpng_userspace_file_last_load_timestamp_seconds: When a valid state file was last loaded. <- fileLoaded =now
counter kpng_userspace_sink_failures_total: Change sets that failed to apply; they are retried. <- sinkFailed
histogram kubeproxy_sync_proxy_rules_duration_seconds: Time to apply a change set. <- proxierSynced =durationMs
gauge kubeproxy_sync_proxy_rules_last_timestamp_seconds: When a change set was last applied. <- proxierSynced =now
gauge kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds: When a change set was last received. <- sourceSynced =now
gauge kubeproxy_sync_proxy_rules_service_changes_pending: Services with changes that are not applied yet, their endpoints included. <- sourceSynced =changed; proxierSynced =0
counter kubeproxy_sync_proxy_rules_service_changes_total: Service ports added, changed or removed. <- proxierSynced =added+changed+removed
counter kubeproxy_sync_proxy_rules_endpoint_changes_total: Service ports of which only the endpoints changed. <- proxierSynced =endpointsChanged
gauge kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy}: Services with a Local traffic policy and no endpoint for it, by policy.
histogram kubeproxy_network_programming_duration_seconds: Time from a change of endpoints in the cluster until it is applied here.
counter kpng_userspace_sync_failures_total: Change sets that could not be applied. <- proxierSyncFailed
gauge kpng_userspace_service_ports: Service ports that are proxied. <- proxierSynced =servicePorts
counter kpng_userspace_problems_total{code}: Problems that kept a part of the state from being proxied, by code. <- problemChanged kind=appeared
counter kpng_userspace_config_reloads_total{result}: Reloads of the configuration file. <- configReloaded {result=ok}; configFailed {result=failed}
gauge kpng_userspace_config_last_reload_timestamp_seconds: When a valid configuration file was last reloaded. <- configReloaded =now
gauge kpng_userspace_config_pending_settings: Settings of the configuration file that take effect only after a restart. <- configReloaded =refused
gauge kpng_userspace_source_last_event_age_seconds{resource}: Time since the last event of the source, bookmarks included.
counter kpng_userspace_kube_events_total{resource,type}: Watch events. <- kubeReceived added =added {type=added}; kubeReceived modified =modified {type=modified}; kubeReceived deleted =deleted {type=deleted}; kubeReceived bookmarks =bookmarks {type=bookmark}
counter kpng_userspace_kube_watches_total{resource}: Watches opened. <- kubeWatching
counter kpng_userspace_kube_lists_total{resource,cause}: Complete lists of a resource, by cause. <- kubeListed
counter kpng_userspace_kube_failures_total{resource,cause}: Failed lists and watches, by cause. <- kubeFailed
gauge kpng_userspace_kube_orphan_slices: EndpointSlices whose Service does not exist, or is not for this proxy. <- kubeOrphans =count
gauge kpng_userspace_api_watchers{api}: Clients that watch now.
counter kpng_userspace_api_watches_total{api}: Watch calls started. <- watchStarted
counter kpng_userspace_api_change_sets_total{api}: Change sets sent to clients, counted when their call ends. <- watchEnded =syncs
counter kpng_userspace_api_lagging_total: Watch calls ended because the client lagged too far behind. <- watchEnded error.code=KPNG_LIMIT_REACHED
counter kpng_userspace_api_refused_total{limit}: Clients refused because of a limit. <- serverLimitReached
counter kpng_userspace_api_handshake_failures_total: Failed TLS handshakes. <- handshakeFailed
counter kpng_k8s_api_events_total: Writes of a source to the state of the cluster, whether they changed anything or not. <- storeWritten
counter kpng_node_local_events_total: Operations sent to clients of both APIs and to the backend of this process. <- sourceSynced =operations; operationsSent =operations
counter kpng_userspace_callout_runs_total{result}: Runs of the callout, by result. <- calloutEnded
gauge kpng_userspace_callout_last_success_timestamp_seconds: When the callout last succeeded. <- calloutEnded result=ok =now
gauge kpng_userspace_callout_last_duration_seconds: Duration of the last run of the callout. <- calloutEnded =durationMs
gauge kpng_userspace_portal_up{portal}: 1 while the packet rules, or the addresses on the interface, are as they should be. <- portalWritten; portalFailed !error.servicePort =0; portalLost =0
counter kpng_userspace_portal_writes_total{portal,reason}: Transactions that changed packet rules or addresses, by reason. <- portalWritten
counter kpng_userspace_portal_failures_total{portal,code}: Failed writes of packet rules or addresses. <- portalFailed
counter kpng_userspace_portal_lost_total{portal}: Times that another program removed or changed packet rules or addresses. <- portalLost
gauge kpng_userspace_portal_shared{portal}: 1 while another process redirects the same traffic with packet rules of another kind. <- portalShared error; portalShared !error =0
gauge kpng_userspace_portal_last_write_duration_seconds{portal}: Duration of the last transaction that changed packet rules or addresses. <- portalWritten =durationMs
counter kpng_userspace_portal_flow_failures_total{portal,code}: Failed attempts to remove stale UDP conntrack entries. <- flowsNotCleared
counter kpng_userspace_engine_faults_total{what}: Faults inside the engine: crashed threads, and errors that closed a connection. <- dataPlaneFault
counter kpng_userspace_http_limit_reached_total{limit}: HTTP connections closed because a limit was reached. <- httpLimitReached
gauge kpng_userspace_problems{code}: Service ports and addresses that cannot be served now, by code.
gauge kpng_userspace_limit{limit}: The limits, by the name of their flag. Times in seconds, sizes in bytes.
gauge kpng_userspace_limit_used{limit}: How much of a limit is used now.
counter kpng_userspace_limit_reached_total{limit}: Times that a limit was reached. <- limitChanged reached
gauge kpng_userspace_health{reason}: The health of the process, by reason: 0 fine, 1 degraded, 2 down. The worst is that of the process.
gauge process_open_fds: Number of open file descriptors; absent where the system does not count them.
gauge kpng_userspace_build_info{version,node,engine,portal}: Always 1; the labels say what is running.
counter kubeproxy_proxy_healthz_total{code}: Answers of /healthz, by status code.
counter kubeproxy_proxy_livez_total{code}: Answers of /livez, by status code.
counter kpng_userspace_authentications_total{result}: Requests for metrics that had to be authenticated, by result.
`);

export type ProcessMetric = keyof typeof PROCESS_METRICS;

/** Metrics of each service port; each line has its labels, and maybe further ones. */
export const SERVICE_PORT_METRICS = table(`
counter kpng_userspace_connections_total: TCP connections accepted and UDP sessions started.
gauge kpng_userspace_connections_active: Open TCP connections and UDP sessions.
counter kpng_userspace_bytes_total: Bytes relayed. In: from clients to endpoints.
counter kpng_userspace_datagrams_total: UDP datagrams relayed. In: from clients to endpoints.
counter kpng_userspace_datagrams_dropped_total: UDP datagrams dropped, in both directions.
histogram kpng_userspace_connect_seconds: Time to connect to an endpoint, for attempts that succeeded.
counter kpng_userspace_connect_errors_total: Failed attempts to connect to an endpoint, by cause.
counter kpng_userspace_retries_total: Attempts to connect after the first of a connection.
counter kpng_userspace_rejected_total: Clients refused, by reason.
gauge kpng_userspace_connections_held: TCP clients held until the service has an endpoint.
counter kpng_userspace_connections_held_total: TCP clients that were held.
counter kpng_userspace_half_close_timeouts_total: Connections closed because one direction was idle for too long after the other had ended.
counter kpng_userspace_udp_idle_timeouts_total: UDP sessions that timed out.
counter kpng_userspace_udp_sessions_evicted_total: UDP sessions evicted to make room for new ones.
gauge kpng_userspace_endpoints: Endpoints of the service port.
gauge kpng_userspace_listeners: Listen addresses, by state.
`);

/** Metrics of each endpoint, likewise. */
export const ENDPOINT_METRICS = table(`
counter kpng_userspace_endpoint_connections_total: TCP connections and UDP sessions started with the endpoint.
gauge kpng_userspace_endpoint_connections_active: Open TCP connections and UDP sessions of the endpoint.
counter kpng_userspace_endpoint_bytes_total: Bytes relayed. In: from clients to the endpoint.
counter kpng_userspace_endpoint_connect_errors_total: Failed attempts to connect to the endpoint.
`);
