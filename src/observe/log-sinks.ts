import type { ErrorCode } from '../errors.ts';
import * as portal from '../portal/events.ts';
import type { PortalSpec } from '../portal/portal.ts';
import * as proxier from '../proxier/events.ts';
import * as events from '../proxysocket/events.ts';
import * as sinks from '../sinks/events.ts';
import { formatHostPort } from '../util/host-port.ts';
import { on, type LogLine, type LogRule } from './log-rules.ts';

const FAULTS: Record<events.DataPlaneFault['what'], LogLine> = {
  'worker-lost': 'error limited: Data-plane worker crashed; its connections are closed',
  fallback: 'error limited: Data-plane workers crashed too often; switching to the fallback engine',
  'internal-error': 'error limited: Internal error closed a connection',
  'events-dropped': 'error limited: Event queue overflowed; some events were not reported',
};

/** Lines, and the codes of those that are errors. */
const REJECTED: Record<events.Rejected['reason'], readonly [LogLine, ErrorCode?]> = {
  'no-endpoint': ["error limited: Couldn't find an endpoint for service", 'KPNG_NO_ENDPOINT'],
  drained: ['error limited: Client refused: endpoints are drained', 'KPNG_DRAINED'],
  'connect-failed': ['error limited: Failed to connect to balancer', 'KPNG_CONNECT_FAILED'],
  limit: ['error limited: Client refused: limit reached', 'KPNG_LIMIT_REACHED'],
  source: ['info 2 limited: Client refused: outside the source ranges of the service'],
  'hold-timeout': [
    'error limited: Client reset: no endpoint within the hold timeout',
    'KPNG_NO_ENDPOINT',
  ],
  'proxy-header': [
    'error limited: Client reset: no valid PROXY protocol header',
    'KPNG_PROXY_HEADER',
  ],
};

const PROBLEM = {
  appeared: 'warn limited: A part of the state cannot be proxied',
  changed: 'warn limited: A part of the state still cannot be proxied',
  gone: 'info limited: A part of the state can be proxied again',
} as const;

const SERVICE_PORT = {
  added: 'info 1: Adding new service',
  changed: 'info 1: Something changed for service',
  removed: 'info 1: Stopping service',
} as const;

function portalText({ kind, address, port }: PortalSpec): string {
  return `${kind} ${address === undefined ? `:${port}` : formatHostPort({ host: address, port })}`;
}

type PortalTexts = Record<portal.PortalWritten['reason'] | 'failed' | 'lost', LogLine>;

const RULE_TEXTS: PortalTexts = {
  start: 'info limited: Packet rules written',
  change: 'info 2: Packet rules changed',
  repair: 'info limited: Packet rules repaired',
  failed: 'error limited: Writing packet rules failed; previous rules stay in force',
  lost: 'warn limited: Packet rules were removed or changed by another program; rewriting them',
};

const ADDRESS_TEXTS: PortalTexts = {
  start: 'info limited: Service addresses added to the interface',
  change: 'info 2: Service addresses on the interface changed',
  repair: 'info limited: Service addresses on the interface repaired',
  failed:
    'error limited: Changing service addresses on the interface failed; present addresses stay',
  lost: 'warn limited: Service addresses were removed from the interface by another program; adding them again',
};

function textsOf(kind: portal.PortalWritten['portal']): PortalTexts {
  return kind === 'address' ? ADDRESS_TEXTS : RULE_TEXTS;
}

/**
 * Log lines of the proxier, the portals, the small sinks and the data path. Those of the data path match kpng's Windows
 * userspace backend where possible, so that existing searches and dashboards keep working; `servicePortName` is on every
 * one of them.
 */
export const SINK_RULES: readonly LogRule[] = [
  on(
    proxier.problemChanged,
    ({ kind }) => PROBLEM[kind],
    ({ kind, problem: { message, code, servicePort: servicePortName, count } }) =>
      kind === 'gone'
        ? { was: message, servicePortName }
        : { err: message, code, servicePortName, count },
  ),
  on(
    proxier.servicePortChanged,
    ({ kind }) => SERVICE_PORT[kind],
    ({ servicePort, protocol, portals }) => ({
      servicePortName: servicePort,
      protocol,
      addresses: portals.map(portalText),
    }),
    1,
  ),
  on(
    proxier.proxierSynced,
    'info 2: userspace syncProxyRules complete',
    'services servicePorts endpoints added changed removed endpointsChanged durationMs~',
  ),
  on(
    portal.portalWritten,
    ({ portal: kind, reason }) => textsOf(kind)[reason],
    'portal added removed durationMs~',
  ),
  on(portal.portalFailed, ({ portal: kind }) => textsOf(kind).failed, 'portal error'),
  on(portal.portalLost, ({ portal: kind }) => textsOf(kind).lost, 'portal message:reason'),
  on(
    portal.portalShared,
    ({ error }) =>
      error === undefined
        ? 'info limited: No other process redirects the same traffic any more'
        : 'warn limited: Another process redirects the same traffic',
    'portal error',
  ),
  on(
    portal.flowsCleared,
    'info 2: Removed stale UDP conntrack entries',
    'portal addresses durationMs~',
  ),
  on(
    portal.flowsNotCleared,
    'warn limited: Removing stale UDP conntrack entries failed; UDP clients may reach old endpoints until they pause',
    'portal error',
  ),
  on(
    sinks.healthCheckServed,
    'info 1: Serving health-check node port',
    'service:servicePortName address',
  ),
  on(
    sinks.healthCheckFailed,
    'error limited: Serving health-check node port failed',
    'service:servicePortName error retryInMs',
  ),
  on(
    sinks.calloutEnded,
    ({ result }) => {
      if (result === 'ok') return 'info 1: Callout completed';
      return result === 'stopped' ? 'info 1: Callout stopped' : 'error limited: Callout failed';
    },
    ({ error: err, program, stderr, durationMs }) => ({
      ...(err === undefined ? { program } : { err }),
      ...(stderr !== '' && { stderr }),
      ms: Math.round(durationMs),
    }),
  ),
  on(sinks.extipProblem, 'error limited: No external-IP rule created for service port', 'error'),
  on(
    events.tcpAccepted,
    'info 3: Accepted TCP connection from remote',
    'servicePort remoteAddress localAddress',
  ),
  on(
    events.endpointPicked,
    'info 4: NextEndpoint for service',
    'servicePort sourceAddress:address endpoints attempt sticky',
  ),
  on(
    events.endpointPicked,
    'info 3: Mapped service to endpoint',
    'servicePort servicePort:service endpoint',
  ),
  on(
    events.connectFailed,
    'error limited: Dial failed',
    'servicePort endpoint attempt cause:reason error',
  ),
  on(
    events.rejected,
    ({ reason }) => REJECTED[reason][0],
    ({ servicePort, protocol, remoteAddress, reason }) => ({
      servicePortName: servicePort,
      protocol,
      remoteAddress,
      code: REJECTED[reason][1],
    }),
  ),
  on(
    events.tcpHeld,
    ({ waiting }) =>
      waiting === 1 ? 'info limited: Holding client until the service has an endpoint' : undefined,
    'servicePort remoteAddress',
  ),
  on(
    events.tcpHoldEnded,
    'info 3: Client no longer held',
    'servicePort remoteAddress waiting durationMs:durationMs reason',
  ),
  on(
    events.relayStarted,
    'info 4: Creating proxy between remote and local addresses',
    'servicePort endpoint inRemoteAddress inLocalAddress outLocalAddress outRemoteAddress',
  ),
  on(events.relayStarted, 'info 4: Copying remote address bytes', (event) => [
    oneWay(event, 'from backend'),
    oneWay(event, 'to backend'),
  ]),
  on(events.relayEnded, 'info 4: Copied remote address bytes', (event) => [
    { ...oneWay(event, 'from backend'), bytes: event.bytesOut },
    { ...oneWay(event, 'to backend'), bytes: event.bytesIn },
  ]),
  on(
    events.relayEnded,
    'info 4: Closed proxy between remote and local addresses',
    'servicePort endpoint inRemoteAddress inLocalAddress outLocalAddress outRemoteAddress reason durationMs:seconds',
  ),
  on(
    events.udpSessionStarted,
    'info 3: New UDP connection from client',
    'servicePort remoteAddress:address endpoint',
  ),
  on(
    events.udpSessionEnded,
    ({ reason }) =>
      reason === 'idle'
        ? 'info 3: connection to endpoint closed due to inactivity'
        : 'info 3: UDP session ended',
    'servicePort remoteAddress:address endpoint datagramsIn datagramsOut reason',
    3,
  ),
  on(events.listenerOpened, 'info 2: Proxying for service', listener),
  on(events.listenerClosed, 'info 2: Stopped listening for service', listener),
  on(events.dataPlaneFault, ({ what }) => FAULTS[what], 'error'),
  // The proxier logs a summary of failures once; these lines are per listener and attempt.
  on(events.listenerFailed, 'error 2 limited: Failed to start proxy for service', (event) => ({
    ...listener(event),
    err: event.error,
    code: event.code,
    retryInMs: Math.round(event.retryInMs),
  })),
  on(
    events.sourceRangeInvalid,
    'error limited: Invalid source range; it admits no client',
    'servicePort range',
  ),
  on(
    events.limitChanged,
    ({ reached }) =>
      reached ? 'warn limited: Limit reached' : 'warn limited: Below the limit again',
    'limit value',
  ),
];

function oneWay(event: events.RelayAddresses, direction: 'from backend' | 'to backend') {
  const {
    servicePort: servicePortName,
    inRemoteAddress: client,
    outRemoteAddress: backend,
  } = event;
  const [sourceRemoteAddress, destinationRemoteAddress] =
    direction === 'from backend' ? [backend, client] : [client, backend];
  return { servicePortName, direction, sourceRemoteAddress, destinationRemoteAddress };
}

function listener({ servicePort, protocol, listen }: events.ListenerOpened) {
  const { address, port, traffic } = listen;
  return {
    servicePortName: servicePort,
    protocol,
    address: formatHostPort({ host: address, port }),
    traffic,
  };
}
