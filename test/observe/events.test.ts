/** What comes of each event: its log lines, the metrics that change, and the health. */
import t from 'tap';
import * as config from '../../src/config/events.ts';
import { KpngError, type ErrorCode } from '../../src/errors.ts';
import * as file from '../../src/file/events.ts';
import * as kube from '../../src/kube/events.ts';
import { followEvents, Health } from '../../src/observe/health.ts';
import { subscribeLog } from '../../src/observe/log-rules.ts';
import { SINK_RULES, SOURCE_RULES } from '../../src/observe/log-table.ts';
import * as portals from '../../src/portal/events.ts';
import * as proxier from '../../src/proxier/events.ts';
import * as events from '../../src/proxysocket/events.ts';
import * as server from '../../src/server/events.ts';
import * as sinks from '../../src/sinks/events.ts';
import * as store from '../../src/store/events.ts';
import type { TypedChannel } from '../../src/util/channel.ts';
import { httpLimitReached } from '../../src/util/http-connections.ts';
import { certificateOutdated } from '../../src/util/tls-files.ts';
import { captureLog, type LogLine } from '../support/captured-log.ts';
import { eventRegistry } from '../support/metrics-page.ts';

const why = (code: ErrorCode): KpngError => new KpngError(code, 'why');
const [source, path, peer, servicePort] = ['the source', '/a/path', '10.9.0.1:5', 'ns/web:http'];
const cause = new Error('deep reason');
const sinkFailed = new KpngError('KPNG_SINK_FAILED', 'no', { cause });
const setting = { flag: 'v', field: 'logging.verbosity', from: '1', to: '2' };
const noFlag = { ...setting, flag: '' };
const misfit = { line: 2, column: 3, path: 'services[0]', message: 'no such key' };
const problems = { first: [misfit], total: 9 };
const counts = { services: 1, nodes: 2, parsedItems: 3, bytes: 4, durationMs: 5.4 };
const invalid = { path, error: why('KPNG_STATE_FILE_INVALID'), errors: problems };
const services = { server: 'https://k', resource: 'services' } as const;
const way = { origin: '--server', context: 'c', user: 'me', by: 'token', proxy: 'http://p' };
const listed = { ...services, objects: 5, pages: 2, durationMs: 6.6 };
const away = why('KPNG_SOURCE_LOST');
const malformed = { kind: 'malformed', error: away, relist: true, retryInMs: 7.6 } as const;
const watch = { peer, nodeName: 'n1', syncs: 3, watchers: 0 };
const web = { servicePort, protocol: 'TCP' } as const;
const specs = { protocol: 'TCP', traffic: 'internal', sourceRanges: [] } as const;
const clusterIP = { ...specs, kind: 'clusterIP', address: '10.0.0.1', port: 80 } as const;
const nodePort = { ...specs, kind: 'nodePort', address: undefined, port: 30_080 } as const;
const problem = { code: 'KPNG_PORTAL_CONFLICT', message: 'taken', servicePort, count: 2 } as const;
const applied = { durationMs: 40.04, services: 9, servicePorts: 8, endpoints: 7 };
const portal = 'nftables';
const ofOne = new KpngError('KPNG_PORTAL_PERMISSION', 'why', { servicePort });
const written = { portal, added: 12, removed: 1, durationMs: 50.04 } as const;
const added = { ...written, portal: 'address' } as const;
const callout = { program: 'jq', error: undefined, stderr: 'hm', durationMs: 5 };
const inside = { inRemoteAddress: 'C', inLocalAddress: 'P' };
const outside = { outLocalAddress: 'Q', outRemoteAddress: 'E' };
const relay = { servicePort, endpoint: 'E', ...inside, ...outside };
const pick = { sourceAddress: 'C', sticky: false, endpoints: 2, attempt: 1 };
const carried = { bytesIn: 78, bytesOut: 1234, durationMs: 1500.4 };
const session = { servicePort, remoteAddress: 'C', endpoint: 'E' };
const error = new Error('a crash');
const unbound = { code: 'KPNG_LISTEN_PERMISSION', error, retryInMs: 1000.7 } as const;
const denied = why('KPNG_LISTEN_PERMISSION');
const refused = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
const client = { servicePort, protocol: 'TCP', remoteAddress: 'C' } as const;
const listener = { ...web, listen: { address: '::1', port: 80, traffic: 'internal' } } as const;

const REJECTED = [
  ...(['no-endpoint', 'drained', 'connect-failed', 'limit'] as const),
  ...(['source', 'hold-timeout', 'proxy-header'] as const),
];
const FAULTS = ['worker-lost', 'fallback', 'internal-error', 'events-dropped'] as const;

/** Publishes one event. */
type Publish = () => void;

function on<Event extends object>(channel: TypedChannel<Event>, event: Event): Publish {
  return () => channel.publish(event);
}

const EVENTS: readonly Publish[] = [
  // The source.
  on(store.sourceConnected, { source }),
  on(store.sourceSynced, { source, services: 12, changed: 7, operations: 3 }),
  on(store.opInvalid, { source, error: why('KPNG_OP_INVALID') }),
  on(store.sinkFailed, { error: sinkFailed, waiting: 2, retryInMs: 500.4 }),
  on(store.sinkRecovered, { failures: 2 }),
  on(store.sourceDisconnected, { source, error: away, retryInMs: 1000 }),
  on(store.sourceDisconnected, { source, error: why('KPNG_KUBE_FORBIDDEN'), retryInMs: 1000 }),
  on(store.sourceDisconnected, { source, error: why('KPNG_KUBE_UNAUTHORIZED'), retryInMs: 1000 }),
  on(store.storeWritten, { changed: false }),
  // The configuration file.
  on(config.configReloaded, { path, changed: [setting], refused: [setting, noFlag] }),
  on(config.configFailed, { path, error: why('KPNG_CONFIG_INVALID') }),
  // The state file.
  on(file.fileLoaded, { path, ...counts, newWarnings: problems }),
  on(file.fileInvalid, { ...invalid, served: false }),
  on(file.fileInvalid, { ...invalid, served: true }),
  on(file.fileReadFailed, { path, error: why('KPNG_STATE_FILE_READ') }),
  on(file.fileRecovered, { path }),
  // Kubernetes.
  on(kube.kubeStarted, { server: 'https://k', ...way, selector: 'x' }),
  on(kube.kubeListed, { ...listed, why: 'start' }),
  on(kube.kubeListed, { ...listed, why: 'malformed' }),
  on(kube.kubeWatching, { ...services, recovered: false }),
  on(kube.kubeWatching, { ...services, recovered: true }),
  on(kube.kubeReceived, { ...services, added: 2, modified: 0, deleted: 1, bookmarks: 3 }),
  on(kube.kubeFailed, { ...services, ...malformed, routine: true }),
  on(kube.kubeFailed, { ...services, ...malformed, routine: false }),
  on(kube.kubeNode, { node: 'n1', ineligible: 'tainted' }),
  on(kube.kubeNode, { node: 'n1', ineligible: undefined }),
  on(kube.kubeOrphans, { count: 2, example: { slice: 'a/b-1', service: 'a/b' } }),
  on(kube.kubeOrphans, { count: 0, example: undefined }),
  // The servers of this process.
  on(server.serverListening, { address: 'tcp://:1', security: 'plaintext', exposed: true }),
  on(server.serverListening, { address: 'tcp://:1', security: 'mtls', exposed: true }),
  on(server.watchStarted, { api: 'local', peer, watchers: 1 }),
  on(server.watchEnded, { api: 'local', ...watch, error: undefined }),
  on(server.watchEnded, { api: 'global', ...watch, error: why('KPNG_LIMIT_REACHED') }),
  on(server.operationsSent, { operations: 9 }),
  on(server.handshakeFailed, { peer, error: new Error('no certificate') }),
  on(server.serverLimitReached, { limit: 'max-watchers', value: 10, peer }),
  on(server.tlsFilesChanged, { error: undefined, validUntil: 1000 }),
  on(server.tlsFilesChanged, { error: why('KPNG_TLS_FILE'), validUntil: 1000 }),
  on(certificateOutdated, { error: why('KPNG_TLS_FILE') }),
  on(httpLimitReached, { limit: 'connections', remoteAddress: peer }),
  // The proxier.
  on(proxier.servicePortChanged, { kind: 'added', ...web, portals: [clusterIP, nodePort] }),
  on(proxier.servicePortChanged, { kind: 'changed', ...web, portals: [] }),
  on(proxier.servicePortChanged, { kind: 'removed', ...web, portals: [] }),
  on(proxier.problemChanged, { kind: 'appeared', problem }),
  on(proxier.problemChanged, { kind: 'changed', problem }),
  on(proxier.problemChanged, { kind: 'gone', problem }),
  on(proxier.proxierSynced, { ...applied, added: 1, changed: 2, removed: 3, endpointsChanged: 4 }),
  on(proxier.proxierSyncFailed, { durationMs: 1, error: why('KPNG_SINK_FAILED') }),
  // Portals.
  on(portals.portalWritten, { ...written, reason: 'start' }),
  on(portals.portalWritten, { ...written, reason: 'change' }),
  on(portals.portalFailed, { portal, error: ofOne }),
  on(portals.portalFailed, { portal, error: why('KPNG_PORTAL_PERMISSION') }),
  on(portals.portalWritten, { ...written, reason: 'repair' }),
  on(portals.portalLost, { portal, message: 'they are gone' }),
  on(portals.portalShared, { portal, error: why('KPNG_PORTAL_SHARED') }),
  on(portals.portalShared, { portal, error: undefined }),
  on(portals.flowsCleared, { portal, addresses: 2, durationMs: 1.26 }),
  on(portals.flowsNotCleared, { portal, error: why('KPNG_PORTAL_TOOL_MISSING') }),
  on(portals.portalWritten, { ...added, reason: 'start' }),
  on(portals.portalWritten, { ...added, reason: 'change' }),
  on(portals.portalFailed, { ...added, error: why('KPNG_PORTAL_PERMISSION') }),
  on(portals.portalLost, { ...added, message: 'gone' }),
  on(portals.portalWritten, { ...added, reason: 'repair' }),
  // Small sinks.
  on(sinks.healthCheckServed, { service: 'a/b', address: peer }),
  on(sinks.healthCheckFailed, { service: 'a/b', error: denied, retryInMs: 1 }),
  on(sinks.calloutEnded, { ...callout, result: 'ok' }),
  on(sinks.calloutEnded, { ...callout, result: 'stopped' }),
  on(sinks.calloutEnded, { ...callout, result: 'exit', error: why('KPNG_CALLOUT_FAILED') }),
  on(sinks.extipProblem, { error: why('KPNG_SERVICE_INVALID') }),
  // The data path: messages and levels as in kube-proxy.
  on(events.tcpAccepted, { servicePort, remoteAddress: 'C', localAddress: 'P' }),
  on(events.endpointPicked, { ...relay, ...pick }),
  on(events.relayStarted, relay),
  on(events.relayEnded, { ...relay, ...carried, reason: 'closed' }),
  on(events.udpSessionStarted, session),
  on(events.udpSessionEnded, { ...session, datagramsIn: 3, datagramsOut: 2, reason: 'idle' }),
  on(events.udpSessionEnded, { ...session, datagramsIn: 3, datagramsOut: 2, reason: 'evicted' }),
  on(events.connectFailed, { ...relay, attempt: 2, cause: 'refused', error: refused }),
  ...REJECTED.map((reason) => on(events.rejected, { ...client, reason })),
  on(events.tcpHeld, { ...client, waiting: 1 }),
  on(events.tcpHoldEnded, { ...client, waiting: 1, durationMs: 5, reason: 'endpoint' }),
  on(events.tcpHeld, { ...client, waiting: 2 }),
  on(events.listenerOpened, listener),
  on(events.listenerFailed, { ...listener, ...unbound }),
  on(events.listenerClosed, listener),
  on(events.sourceRangeInvalid, { servicePort, range: '10.0.0.0/99' }),
  on(events.limitChanged, { limit: 'max-connections', value: 10, reached: true }),
  on(events.limitChanged, { limit: 'max-connections', value: 10, reached: false }),
  ...FAULTS.map((what) => on(events.dataPlaneFault, { what, error })),
];

/** For each event: `level verbosity: message`, keys; then `+` and the metrics, and `=` and the health, that have changed. */
const EXPECTED = `
info: Connected to the source source=the source
+ source_connected 1, source_connects_total 1
= ready
info 2: Received a complete state source=the source services=12 changed=7
+ source_syncs_total 1, source_last_sync_timestamp_seconds 60, source_services 12, kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds 60, kubeproxy_sync_proxy_rules_service_changes_pending 7, kpng_node_local_events_total 3
error: Skipped an invalid item from the source source=the source err=why code=KPNG_OP_INVALID
+ source_invalid_ops_total 1
error: Applying a change failed; retrying waiting=2 retryInMs=500 err=no code=KPNG_SINK_FAILED cause=deep reason
+ sink_failures_total 1
info: Changes are applied again failures=2
warn: Source unreachable; serving last known state source=the source retryInMs=1000 err=why code=KPNG_SOURCE_LOST
+ source_connected 0, source_failures_total 1
= degraded the source has been unreachable (KPNG_SOURCE_LOST)
warn: Kubernetes API refused a request (forbidden); serving last known state source=the source retryInMs=1000 err=why code=KPNG_KUBE_FORBIDDEN
+ source_failures_total 2
= degraded a part of the source has been forbidden (KPNG_KUBE_FORBIDDEN)
warn: Kubernetes API refused the credentials (unauthorized); serving last known state source=the source retryInMs=1000 err=why code=KPNG_KUBE_UNAUTHORIZED
+ source_failures_total 3
= degraded the source has been unreachable (KPNG_KUBE_UNAUTHORIZED)
+ kpng_k8s_api_events_total 1
info: Configuration reloaded path=/a/path changed=1 refused=2
info: Setting changed field=logging.verbosity flag=--v from=1 to=2
warn: Setting changed; takes effect after a restart field=logging.verbosity flag=--v from=1 to=2 code=KPNG_CONFIG_NOT_LIVE
warn: Setting changed; takes effect after a restart field=logging.verbosity from=1 to=2 code=KPNG_CONFIG_NOT_LIVE
+ config_reloads_total{result="ok"} 1, config_last_reload_timestamp_seconds 60, config_pending_settings 2
error: Configuration invalid; keeping the previous settings path=/a/path err=why code=KPNG_CONFIG_INVALID
+ config_reloads_total{result="failed"} 1
info: Loaded the state file path=/a/path services=1 nodes=2 bytes=4 ms=5
warn: A part of the state file has no effect path=/a/path line=2 column=3 at=services[0] err=no such key
warn: A part of the state file has no effect path=/a/path err=and 8 more
+ source_connected 1, file_loads_total 1, file_last_load_timestamp_seconds 60
= ready
error: State file invalid; nothing is served yet path=/a/path line=2 column=3 at=services[0] code=KPNG_STATE_FILE_INVALID err=no such key
error: State file invalid; nothing is served yet path=/a/path code=KPNG_STATE_FILE_INVALID err=and 8 more
+ source_connected 0, file_failures_total{code="KPNG_STATE_FILE_INVALID"} 1
= degraded the state file has not been usable (KPNG_STATE_FILE_INVALID)
error: State file invalid; serving the last good state path=/a/path line=2 column=3 at=services[0] code=KPNG_STATE_FILE_INVALID err=no such key
error: State file invalid; serving the last good state path=/a/path code=KPNG_STATE_FILE_INVALID err=and 8 more
+ file_failures_total{code="KPNG_STATE_FILE_INVALID"} 2
error: Reading the state file failed; retrying path=/a/path err=why code=KPNG_STATE_FILE_READ
+ file_failures_total{code="KPNG_STATE_FILE_READ"} 1
= degraded the state file has not been usable (KPNG_STATE_FILE_READ)
info: The state file can be read again path=/a/path
+ source_connected 1
= ready
info: Connected to the Kubernetes API server=https://k config=--server context=c user=me by=token proxy=http://p selector=x
info 2: Listed resource=services objects=5 pages=2 ms=7
+ source_last_event_age_seconds{resource="services"} 0, kube_lists_total{resource="services",cause="start"} 1
info 2: Listed again resource=services objects=5 pages=2 ms=7 because=malformed
+ kube_lists_total{resource="services",cause="malformed"} 1
info 2: Watching resource=services
+ kube_watches_total{resource="services"} 1
info 2: Watching again resource=services
+ kube_watches_total{resource="services"} 2
+ kube_events_total{resource="services",type="added"} 2, kube_events_total{resource="services",type="deleted"} 1, kube_events_total{resource="services",type="bookmark"} 3
info 2: Watch ended; watching again resource=services because=malformed retryInMs=8 err=why
+ kube_failures_total{resource="services",cause="malformed"} 1
+ kube_failures_total{resource="services",cause="malformed"} 2
info: Node is about to be removed; /healthz answers 503 node=n1 because=tainted
= degraded the node is tainted ToBeDeletedByClusterAutoscaler
info: Node is eligible for load balancers again node=n1
= ready
info 1: EndpointSlices without a Service for this proxy; waiting for their Services count=2 slice=a/b-1 service=a/b
+ kube_orphan_slices 2
info 1: Every EndpointSlice has its Service now
+ kube_orphan_slices 0
info: Serving the API address=tcp://:1 security=plaintext
warn: API served in plaintext: any client that can connect can read the state of the cluster address=tcp://:1
info: Serving the API address=tcp://:1 security=mtls
info 1: Client started to watch api=local client=10.9.0.1:5 watchers=1
+ api_watchers{api="local"} 1, api_watches_total{api="local"} 1
info 1: Client stopped watching api=local client=10.9.0.1:5 node=n1 syncs=3 watchers=0
+ api_watchers{api="local"} 0, api_change_sets_total{api="local"} 3
info 1: Client stopped watching api=global client=10.9.0.1:5 node=n1 syncs=3 watchers=0 err=why code=KPNG_LIMIT_REACHED
+ api_watchers{api="global"} -1, api_change_sets_total{api="global"} 3, api_lagging_total 1
+ kpng_node_local_events_total 12
warn: TLS handshake failed client=10.9.0.1:5 err=no certificate
+ api_handshake_failures_total 1
warn: Client refused: limit reached limit=max-watchers value=10 client=10.9.0.1:5
+ api_refused_total{limit="max-watchers"} 1
info: TLS files changed; used for new connections validUntil=1970-01-01T00:00:01.000Z
warn: TLS files changed but are invalid; keeping the previous ones validUntil=1970-01-01T00:00:01.000Z err=why code=KPNG_TLS_FILE
warn: TLS certificate not valid at this time; clients refuse it err=why code=KPNG_TLS_FILE
warn: HTTP connection closed: limit reached limit=connections remoteAddress=10.9.0.1:5
+ http_limit_reached_total{limit="connections"} 1
info 1: Adding new service servicePortName=ns/web:http protocol=TCP addresses=[clusterIP 10.0.0.1:80,nodePort :30080]
info 1: Something changed for service servicePortName=ns/web:http protocol=TCP addresses=[]
info 1: Stopping service servicePortName=ns/web:http protocol=TCP addresses=[]
warn: A part of the state cannot be proxied code=KPNG_PORTAL_CONFLICT servicePortName=ns/web:http count=2 err=taken
+ problems_total{code="KPNG_PORTAL_CONFLICT"} 1
warn: A part of the state still cannot be proxied code=KPNG_PORTAL_CONFLICT servicePortName=ns/web:http count=2 err=taken
info: A part of the state can be proxied again was=taken servicePortName=ns/web:http
info 2: userspace syncProxyRules complete services=9 servicePorts=8 endpoints=7 added=1 changed=2 removed=3 endpointsChanged=4 ms=40
+ kubeproxy_sync_proxy_rules_duration_seconds_sum 0.04004, kubeproxy_sync_proxy_rules_duration_seconds_count 1, kubeproxy_sync_proxy_rules_last_timestamp_seconds 60, kubeproxy_sync_proxy_rules_service_changes_pending 0, kubeproxy_sync_proxy_rules_service_changes_total 6, kubeproxy_sync_proxy_rules_endpoint_changes_total 4, service_ports 8
+ sync_failures_total 1
info: Packet rules written portal=nftables added=12 removed=1 ms=50
+ portal_up{portal="nftables"} 1, portal_writes_total{portal="nftables",reason="start"} 1, portal_last_write_duration_seconds{portal="nftables"} 0.05004
info 2: Packet rules changed portal=nftables added=12 removed=1 ms=50
+ portal_writes_total{portal="nftables",reason="change"} 1
error: Writing packet rules failed; previous rules stay in force portal=nftables err=why code=KPNG_PORTAL_PERMISSION servicePortName=ns/web:http
+ portal_failures_total{portal="nftables",code="KPNG_PORTAL_PERMISSION"} 1
error: Writing packet rules failed; previous rules stay in force portal=nftables err=why code=KPNG_PORTAL_PERMISSION
+ portal_up{portal="nftables"} 0, portal_failures_total{portal="nftables",code="KPNG_PORTAL_PERMISSION"} 2
= down the packet rules could not be written (KPNG_PORTAL_PERMISSION)
info: Packet rules repaired portal=nftables added=12 removed=1 ms=50
+ portal_up{portal="nftables"} 1, portal_writes_total{portal="nftables",reason="repair"} 1
= ready
warn: Packet rules were removed or changed by another program; rewriting them portal=nftables reason=they are gone
+ portal_up{portal="nftables"} 0, portal_lost_total{portal="nftables"} 1
warn: Another process redirects the same traffic portal=nftables err=why code=KPNG_PORTAL_SHARED
+ portal_shared{portal="nftables"} 1
= degraded another process has redirected the same traffic (KPNG_PORTAL_SHARED)
info: No other process redirects the same traffic any more portal=nftables
+ portal_shared{portal="nftables"} 0
= ready
info 2: Removed stale UDP conntrack entries portal=nftables addresses=2 ms=1.3
warn: Removing stale UDP conntrack entries failed; UDP clients may reach old endpoints until they pause portal=nftables err=why code=KPNG_PORTAL_TOOL_MISSING
+ portal_flow_failures_total{portal="nftables",code="KPNG_PORTAL_TOOL_MISSING"} 1
info: Service addresses added to the interface portal=address added=12 removed=1 ms=50
+ portal_up{portal="address"} 1, portal_writes_total{portal="address",reason="start"} 1, portal_last_write_duration_seconds{portal="address"} 0.05004
info 2: Service addresses on the interface changed portal=address added=12 removed=1 ms=50
+ portal_writes_total{portal="address",reason="change"} 1
error: Changing service addresses on the interface failed; present addresses stay portal=address err=why code=KPNG_PORTAL_PERMISSION
+ portal_up{portal="address"} 0, portal_failures_total{portal="address",code="KPNG_PORTAL_PERMISSION"} 1
= down the service addresses could not be put on the interface (KPNG_PORTAL_PERMISSION)
warn: Service addresses were removed from the interface by another program; adding them again portal=address reason=gone
+ portal_lost_total{portal="address"} 1
info: Service addresses on the interface repaired portal=address added=12 removed=1 ms=50
+ portal_up{portal="address"} 1, portal_writes_total{portal="address",reason="repair"} 1
= ready
info 1: Serving health-check node port servicePortName=a/b address=10.9.0.1:5
error: Serving health-check node port failed servicePortName=a/b retryInMs=1 err=why code=KPNG_LISTEN_PERMISSION
info 1: Callout completed program=jq stderr=hm ms=5
+ callout_runs_total{result="ok"} 1, callout_last_success_timestamp_seconds 60, callout_last_duration_seconds 0.005
info 1: Callout stopped program=jq stderr=hm ms=5
+ callout_runs_total{result="stopped"} 1
error: Callout failed stderr=hm ms=5 err=why code=KPNG_CALLOUT_FAILED
+ callout_runs_total{result="exit"} 1
error: No external-IP rule created for service port err=why code=KPNG_SERVICE_INVALID
info 3: Accepted TCP connection from remote servicePortName=ns/web:http remoteAddress=C localAddress=P
info 4: NextEndpoint for service servicePortName=ns/web:http address=C endpoints=2 attempt=1 sticky=false
info 3: Mapped service to endpoint servicePortName=ns/web:http service=ns/web:http endpoint=E
info 4: Creating proxy between remote and local addresses servicePortName=ns/web:http endpoint=E inRemoteAddress=C inLocalAddress=P outLocalAddress=Q outRemoteAddress=E
info 4: Copying remote address bytes servicePortName=ns/web:http direction=from backend sourceRemoteAddress=E destinationRemoteAddress=C
info 4: Copying remote address bytes servicePortName=ns/web:http direction=to backend sourceRemoteAddress=C destinationRemoteAddress=E
info 4: Copied remote address bytes servicePortName=ns/web:http direction=from backend sourceRemoteAddress=E destinationRemoteAddress=C bytes=1234
info 4: Copied remote address bytes servicePortName=ns/web:http direction=to backend sourceRemoteAddress=C destinationRemoteAddress=E bytes=78
info 4: Closed proxy between remote and local addresses servicePortName=ns/web:http endpoint=E inRemoteAddress=C inLocalAddress=P outLocalAddress=Q outRemoteAddress=E reason=closed seconds=1.5
info 3: New UDP connection from client servicePortName=ns/web:http address=C endpoint=E
info 3: connection to endpoint closed due to inactivity servicePortName=ns/web:http address=C endpoint=E datagramsIn=3 datagramsOut=2 reason=idle
info 3: UDP session ended servicePortName=ns/web:http address=C endpoint=E datagramsIn=3 datagramsOut=2 reason=evicted
error: Dial failed servicePortName=ns/web:http endpoint=E attempt=2 reason=refused err=connect ECONNREFUSED code=ECONNREFUSED
error: Couldn't find an endpoint for service servicePortName=ns/web:http protocol=TCP remoteAddress=C code=KPNG_NO_ENDPOINT
error: Client refused: endpoints are drained servicePortName=ns/web:http protocol=TCP remoteAddress=C code=KPNG_DRAINED
error: Failed to connect to balancer servicePortName=ns/web:http protocol=TCP remoteAddress=C code=KPNG_CONNECT_FAILED
error: Client refused: limit reached servicePortName=ns/web:http protocol=TCP remoteAddress=C code=KPNG_LIMIT_REACHED
info 2: Client refused: outside the source ranges of the service servicePortName=ns/web:http protocol=TCP remoteAddress=C
error: Client reset: no endpoint within the hold timeout servicePortName=ns/web:http protocol=TCP remoteAddress=C code=KPNG_NO_ENDPOINT
error: Client reset: no valid PROXY protocol header servicePortName=ns/web:http protocol=TCP remoteAddress=C code=KPNG_PROXY_HEADER
info: Holding client until the service has an endpoint servicePortName=ns/web:http remoteAddress=C
info 3: Client no longer held servicePortName=ns/web:http remoteAddress=C waiting=1 durationMs=5 reason=endpoint
info 2: Proxying for service servicePortName=ns/web:http protocol=TCP address=[::1]:80 traffic=internal
error: Failed to start proxy for service servicePortName=ns/web:http protocol=TCP address=[::1]:80 traffic=internal code=KPNG_LISTEN_PERMISSION retryInMs=1001 err=a crash
info 2: Stopped listening for service servicePortName=ns/web:http protocol=TCP address=[::1]:80 traffic=internal
error: Invalid source range; it admits no client servicePortName=ns/web:http range=10.0.0.0/99
warn: Limit reached limit=max-connections value=10
+ limit_reached_total{limit="max-connections"} 1
warn: Below the limit again limit=max-connections value=10
error: Data-plane worker crashed; its connections are closed err=a crash
+ engine_faults_total{what="worker-lost"} 1
error: Data-plane workers crashed too often; switching to the fallback engine err=a crash
+ engine_faults_total{what="fallback"} 1
error: Internal error closed a connection err=a crash
+ engine_faults_total{what="internal-error"} 1
error: Event queue overflowed; some events were not reported err=a crash
+ engine_faults_total{what="events-dropped"} 1
`;

t.test('each event has its log lines and changes its metrics', async (t) => {
  const { log, lines } = await captureLog(4);
  const now = (): number => 60_000;
  const registry = eventRegistry(t, now);
  t.teardown(subscribeLog(log, [...SOURCE_RULES, ...SINK_RULES]));
  const health = new Health(now);
  t.teardown(followEvents(health));
  health.synced();
  health.failing('sourceLost', { code: 'KPNG_SOURCE_LOST' });
  const healthNow = (): string => {
    const { state, reasons } = health.verdict;
    const texts = reasons.map(({ message }) => message.replace(/ since [-:.\dTZ]+|;.*/g, ''));
    return ['=', state, ...texts].join(' ');
  };
  const series = async (): Promise<string[]> =>
    (await registry.metrics()).split('\n').filter((line) => !/^#|_bucket\{|^$/.test(line));
  const seen: string[] = [];
  let before = await series();
  let known = healthNow();
  for (const publish of EVENTS) {
    const written = lines().length;
    publish();
    const after = await series();
    const changed = after.filter((line) => !before.includes(line));
    seen.push(...lines().slice(written).map(textOf));
    if (changed.length > 0) seen.push(`+ ${changed.join(', ').replaceAll('kpng_userspace_', '')}`);
    if (healthNow() !== known) seen.push((known = healthNow()));
    before = after;
  }
  t.strictSame(seen, EXPECTED.trim().split('\n'));
  t.same(health.facts.source, { name: source, syncedAt: now() });
});

/** A line without its time. */
function textOf({ level, v, msg, ...keys }: LogLine): string {
  delete keys['time'];
  const pairs = Object.entries(keys).map(([key, value]) => ` ${key}=${JSON.stringify(value)}`);
  return `${level}${typeof v === 'number' ? ` ${v}` : ''}: ${msg}${pairs.join('').replaceAll('"', '')}`;
}
