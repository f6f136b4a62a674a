import type { SettingChange } from '../config/events.ts';
import type { Problems } from '../file/problem.ts';
import type { SourceDisconnected } from '../store/events.ts';
import { CHANNELS } from './channels.ts';
import { rule, type LogRule } from './log-rules.ts';
import type { LogKeys } from './log.ts';

/** Rules from a table: in front of each row (see `rule`) the name of a channel. */
function table(text: string): LogRule[] {
  return text
    .trim()
    .split('\n')
    .map((line) => {
      const [, name = '', row = ''] = /^(\w+)(.*)$/.exec(line) ?? [];
      return rule(CHANNELS[name as 'sinkFailed'], row.trimStart());
    });
}

/** Log lines of sources and of the servers of this process. The Kubernetes source also causes those of all sources. */
export const SOURCE_RULES: readonly LogRule[] = [
  ...table(`
sourceConnected: info limited: Connected to the source | source
sourceSynced: info 2: Received a complete state | source, services, changed
opInvalid: error limited: Skipped an invalid item from the source | source, error
sinkFailed: error limited: Applying a change failed; retrying | error, waiting, retryInMs
sinkRecovered: info limited: Changes are applied again | failures
configReloaded: info: Configuration reloaded | path, changed, refused
configFailed: error: Configuration invalid; keeping the previous settings | path, error
fileLoaded: info limited: Loaded the state file | path, services, nodes, bytes, durationMs
fileReadFailed: error: Reading the state file failed; retrying | path, error
fileRecovered: info: The state file can be read again | path
kubeStarted: info: Connected to the Kubernetes API | server, origin, context, user, by, proxy, selector
kubeListed why=start: info 2: Listed | resource, objects, pages, durationMs
kubeListed why!=start: info 2: Listed again | resource, objects, pages, durationMs, why:because
kubeFailed routine: info 2: Watch ended; watching again | resource, kind:because, error.message:err, retryInMs
kubeWatching !recovered: info 2: Watching | resource
kubeWatching recovered: info 2: Watching again | resource
kubeNode !ineligible: info: Node is eligible for load balancers again | node
kubeNode ineligible: info: Node is about to be removed; /healthz answers 503 | node, ineligible:because
kubeOrphans !example: info 1: Every EndpointSlice has its Service now
kubeOrphans example: info 1: EndpointSlices without a Service for this proxy; waiting for their Services | count, example.slice:slice, example.service:service
serverListening: info: Serving the API | address, security
serverListening exposed security=plaintext: warn: API served in plaintext: any client that can connect can read the state of the cluster | address
watchStarted: info 1 limited: Client started to watch | api, peer, watchers
watchEnded: info 1 limited: Client stopped watching | api, peer, nodeName, syncs, watchers, error
handshakeFailed: warn limited: TLS handshake failed | peer, error
serverLimitReached: warn limited: Client refused: limit reached | limit, value, peer
tlsFilesChanged !error: info: TLS files changed; used for new connections | validUntil
tlsFilesChanged error: warn: TLS files changed but are invalid; keeping the previous ones | error, validUntil
certificateOutdated: warn: TLS certificate not valid at this time; clients refuse it | error
httpLimitReached: warn limited: HTTP connection closed: limit reached | limit, remoteAddress
`),
  outages(),
  rule(CHANNELS.configReloaded, ': info: Setting changed', ({ changed }) =>
    changed.map(settingKeys),
  ),
  rule(
    CHANNELS.configReloaded,
    ': warn: Setting changed; takes effect after a restart',
    ({ refused }) =>
      refused.map((change) => ({ ...settingKeys(change), code: 'KPNG_CONFIG_NOT_LIVE' })),
  ),
  // Only new ones: the file may be written every minute.
  rule(
    CHANNELS.fileLoaded,
    ': warn: A part of the state file has no effect',
    ({ path, newWarnings }) => problemLines(path, newWarnings),
  ),
  ...[
    'served: error: State file invalid; serving the last good state',
    '!served: error: State file invalid; nothing is served yet',
  ].map((row) =>
    rule(CHANNELS.fileInvalid, row, ({ path, errors, error: { code } }) =>
      problemLines(path, errors, { code }),
    ),
  ),
];

/**
 * Log lines of the proxier, the portals, the small sinks and the data path. Those of the data path match kpng's Windows
 * userspace backend where possible, so that existing searches and dashboards keep working; `servicePortName` is on every
 * one of them.
 */
export const SINK_RULES: readonly LogRule[] = table(`
problemChanged kind=appeared: warn limited: A part of the state cannot be proxied | problem.message:err, problem.code:code, problem.servicePort:servicePortName, problem.count:count
problemChanged kind=changed: warn limited: A part of the state still cannot be proxied | problem.message:err, problem.code:code, problem.servicePort:servicePortName, problem.count:count
problemChanged kind=gone: info limited: A part of the state can be proxied again | problem.message:was, problem.servicePort:servicePortName
servicePortChanged kind=added: info 1: Adding new service | servicePort, protocol, portals
servicePortChanged kind=changed: info 1: Something changed for service | servicePort, protocol, portals
servicePortChanged kind=removed: info 1: Stopping service | servicePort, protocol, portals
proxierSynced: info 2: userspace syncProxyRules complete | services, servicePorts, endpoints, added, changed, removed, endpointsChanged, durationMs~
portalWritten portal!=address reason=start: info limited: Packet rules written | portal, added, removed, durationMs~
portalWritten portal!=address reason=change: info 2: Packet rules changed | portal, added, removed, durationMs~
portalWritten portal!=address reason=repair: info limited: Packet rules repaired | portal, added, removed, durationMs~
portalFailed portal!=address: error limited: Writing packet rules failed; previous rules stay in force | portal, error
portalLost portal!=address: warn limited: Packet rules were removed or changed by another program; rewriting them | portal, message:reason
portalWritten portal=address reason=start: info limited: Service addresses added to the interface | portal, added, removed, durationMs~
portalWritten portal=address reason=change: info 2: Service addresses on the interface changed | portal, added, removed, durationMs~
portalWritten portal=address reason=repair: info limited: Service addresses on the interface repaired | portal, added, removed, durationMs~
portalFailed portal=address: error limited: Changing service addresses on the interface failed; present addresses stay | portal, error
portalLost portal=address: warn limited: Service addresses were removed from the interface by another program; adding them again | portal, message:reason
portalShared !error: info limited: No other process redirects the same traffic any more | portal
portalShared error: warn limited: Another process redirects the same traffic | portal, error
flowsCleared: info 2: Removed stale UDP conntrack entries | portal, addresses, durationMs~
flowsNotCleared: warn limited: Removing stale UDP conntrack entries failed; UDP clients may reach old endpoints until they pause | portal, error
healthCheckServed: info 1: Serving health-check node port | service:servicePortName, address
healthCheckFailed: error limited: Serving health-check node port failed | service:servicePortName, error, retryInMs
calloutEnded result=ok: info 1: Callout completed | program, stderr, durationMs
calloutEnded result=stopped: info 1: Callout stopped | program, stderr, durationMs
calloutEnded result!=ok result!=stopped: error limited: Callout failed | error, stderr, durationMs
extipProblem: error limited: No external-IP rule created for service port | error
tcpAccepted: info 3: Accepted TCP connection from remote | servicePort, remoteAddress, localAddress
endpointPicked: info 4: NextEndpoint for service | servicePort, sourceAddress:address, endpoints, attempt, sticky
endpointPicked: info 3: Mapped service to endpoint | servicePort, servicePort:service, endpoint
connectFailed: error limited: Dial failed | servicePort, endpoint, attempt, cause:reason, error
rejected reason=no-endpoint: error limited: Couldn't find an endpoint for service | servicePort, protocol, remoteAddress, code=KPNG_NO_ENDPOINT
rejected reason=drained: error limited: Client refused: endpoints are drained | servicePort, protocol, remoteAddress, code=KPNG_DRAINED
rejected reason=connect-failed: error limited: Failed to connect to balancer | servicePort, protocol, remoteAddress, code=KPNG_CONNECT_FAILED
rejected reason=limit: error limited: Client refused: limit reached | servicePort, protocol, remoteAddress, code=KPNG_LIMIT_REACHED
rejected reason=source: info 2 limited: Client refused: outside the source ranges of the service | servicePort, protocol, remoteAddress
rejected reason=hold-timeout: error limited: Client reset: no endpoint within the hold timeout | servicePort, protocol, remoteAddress, code=KPNG_NO_ENDPOINT
rejected reason=proxy-header: error limited: Client reset: no valid PROXY protocol header | servicePort, protocol, remoteAddress, code=KPNG_PROXY_HEADER
tcpHeld waiting=1: info limited: Holding client until the service has an endpoint | servicePort, remoteAddress
tcpHoldEnded: info 3: Client no longer held | servicePort, remoteAddress, waiting, durationMs:durationMs, reason
relayStarted: info 4: Creating proxy between remote and local addresses | servicePort, endpoint, inRemoteAddress, inLocalAddress, outLocalAddress, outRemoteAddress
relayStarted: info 4: Copying remote address bytes | servicePort, direction=from backend, outRemoteAddress:sourceRemoteAddress, inRemoteAddress:destinationRemoteAddress
relayStarted: info 4: Copying remote address bytes | servicePort, direction=to backend, inRemoteAddress:sourceRemoteAddress, outRemoteAddress:destinationRemoteAddress
relayEnded: info 4: Copied remote address bytes | servicePort, direction=from backend, outRemoteAddress:sourceRemoteAddress, inRemoteAddress:destinationRemoteAddress, bytesOut:bytes
relayEnded: info 4: Copied remote address bytes | servicePort, direction=to backend, inRemoteAddress:sourceRemoteAddress, outRemoteAddress:destinationRemoteAddress, bytesIn:bytes
relayEnded: info 4: Closed proxy between remote and local addresses | servicePort, endpoint, inRemoteAddress, inLocalAddress, outLocalAddress, outRemoteAddress, reason, durationMs:seconds
udpSessionStarted: info 3: New UDP connection from client | servicePort, remoteAddress:address, endpoint
udpSessionEnded reason=idle: info 3: connection to endpoint closed due to inactivity | servicePort, remoteAddress:address, endpoint, datagramsIn, datagramsOut, reason
udpSessionEnded reason!=idle: info 3: UDP session ended | servicePort, remoteAddress:address, endpoint, datagramsIn, datagramsOut, reason
listenerOpened: info 2: Proxying for service | servicePort, protocol, listen
listenerClosed: info 2: Stopped listening for service | servicePort, protocol, listen
listenerFailed: error 2 limited: Failed to start proxy for service | servicePort, protocol, listen, error, code, retryInMs
sourceRangeInvalid: error limited: Invalid source range; it admits no client | servicePort, range
limitChanged reached: warn limited: Limit reached | limit, value
limitChanged !reached: warn limited: Below the limit again | limit, value
dataPlaneFault what=worker-lost: error limited: Data-plane worker crashed; its connections are closed | error
dataPlaneFault what=fallback: error limited: Data-plane workers crashed too often; switching to the fallback engine | error
dataPlaneFault what=internal-error: error limited: Internal error closed a connection | error
dataPlaneFault what=events-dropped: error limited: Event queue overflowed; some events were not reported | error
`);

/** Reasons of one outage that are remembered. */
const MAX_REASONS = 16;

/**
 * One line for each reason of an outage: retries repeat it, and so do the watches of several resources. From -v=2 on, every
 * failed attempt is logged.
 */
function outages(): LogRule {
  return {
    v: 0,
    subscribe(subscriptions, log, limiter) {
      const reasons = new Set<string>();
      const news = ({ source, error, retryInMs }: SourceDisconnected): LogKeys[] => {
        const reason = `${source} ${error.message.replace(/^(?:list|watch) \S+ at /, '')}`;
        if (reasons.has(reason) && log.verbosity < 2) return [];
        if (reasons.size === MAX_REASONS) reasons.clear();
        reasons.add(reason);
        return [{ source, err: error, retryInMs: Math.round(retryInMs) }];
      };
      subscriptions.on(CHANNELS.sourceConnected, () => reasons.clear());
      for (const row of LOST) {
        rule(CHANNELS.sourceDisconnected, row, news).subscribe(subscriptions, log, limiter);
      }
    },
  };
}

const LOST = [
  'error.code=KPNG_KUBE_UNAUTHORIZED: warn limited: Kubernetes API refused the credentials (unauthorized); serving last known state',
  'error.code=KPNG_KUBE_FORBIDDEN: warn limited: Kubernetes API refused a request (forbidden); serving last known state',
  'error.code!=KPNG_KUBE_UNAUTHORIZED error.code!=KPNG_KUBE_FORBIDDEN: warn limited: Source unreachable; serving last known state',
];

function settingKeys({ flag, field, from, to }: SettingChange): LogKeys {
  return { field, ...(flag !== '' && { flag: `--${flag}` }), from, to };
}

function problemLines(path: string, { first, total }: Problems, more: LogKeys = {}): LogKeys[] {
  const lines: LogKeys[] = first.map((problem) => {
    const { line, column } = problem;
    return { path, line, column, at: problem.path, err: problem.message, ...more };
  });
  const left = total - first.length;
  return left > 0 ? [...lines, { path, err: `and ${left} more`, ...more }] : lines;
}
