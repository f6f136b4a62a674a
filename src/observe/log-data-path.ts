import * as events from '../proxysocket/events.ts';
import { formatHostPort } from '../util/host-port.ts';
import { on, type LogRule } from './log-rules.ts';

const FAULTS = {
  'worker-lost': 'Data-plane worker crashed; its connections are closed',
  fallback: 'Data-plane workers crashed too often; switching to the fallback engine',
  'internal-error': 'Internal error closed a connection',
  'events-dropped': 'Event queue overflowed; some events were not reported',
} as const satisfies Record<events.DataPlaneFault['what'], string>;

const REJECTED = {
  'no-endpoint': ["Couldn't find an endpoint for service", 'KPNG_NO_ENDPOINT'],
  drained: ['Client refused: endpoints are drained', 'KPNG_DRAINED'],
  'connect-failed': ['Failed to connect to balancer', 'KPNG_CONNECT_FAILED'],
  limit: ['Client refused: limit reached', 'KPNG_LIMIT_REACHED'],
  source: [undefined, undefined],
  'hold-timeout': ['Client reset: no endpoint within the hold timeout', 'KPNG_NO_ENDPOINT'],
  'proxy-header': ['Client reset: no valid PROXY protocol header', 'KPNG_PROXY_HEADER'],
} as const satisfies Record<events.Rejected['reason'], readonly unknown[]>;

/**
 * Log lines of the data path. Messages and keys match kpng's Windows userspace backend where possible, so that
 * existing searches and dashboards keep working; `servicePortName` is on every line.
 */
export const DATA_PATH_RULES: readonly LogRule[] = [
  on(
    events.tcpAccepted,
    'info 3',
    'Accepted TCP connection from remote',
    'servicePort remoteAddress localAddress',
  ),
  on(
    events.endpointPicked,
    'info 4',
    'NextEndpoint for service',
    'servicePort sourceAddress:address endpoints attempt sticky',
  ),
  on(
    events.endpointPicked,
    'info 3',
    'Mapped service to endpoint',
    'servicePort servicePort:service endpoint',
  ),
  on(
    events.connectFailed,
    'error limited',
    'Dial failed',
    'servicePort endpoint attempt cause:reason error',
  ),
  on(
    events.rejected,
    'error limited',
    ({ reason }) => REJECTED[reason][0],
    ({ servicePort, protocol, remoteAddress, reason }) => ({
      servicePortName: servicePort,
      protocol,
      remoteAddress,
      code: REJECTED[reason][1],
    }),
  ),
  on(
    events.rejected,
    'info 2 limited',
    ({ reason }) =>
      reason === 'source' ? 'Client refused: outside the source ranges of the service' : undefined,
    'servicePort protocol remoteAddress',
  ),
  on(
    events.tcpHeld,
    'info limited',
    ({ waiting }) =>
      waiting === 1 ? 'Holding client until the service has an endpoint' : undefined,
    'servicePort remoteAddress',
  ),
  on(
    events.tcpHoldEnded,
    'info 3',
    'Client no longer held',
    'servicePort remoteAddress waiting durationMs:durationMs reason',
  ),
  on(events.relayStarted, 'info 4', 'Creating proxy between remote and local addresses', addresses),
  on(events.relayStarted, 'info 4', 'Copying remote address bytes', (event) => [
    oneWay(event, 'from backend'),
    oneWay(event, 'to backend'),
  ]),
  on(events.relayEnded, 'info 4', 'Copied remote address bytes', (event) => [
    { ...oneWay(event, 'from backend'), bytes: event.bytesOut },
    { ...oneWay(event, 'to backend'), bytes: event.bytesIn },
  ]),
  on(events.relayEnded, 'info 4', 'Closed proxy between remote and local addresses', (event) => ({
    ...addresses(event),
    reason: event.reason,
    seconds: Math.round(event.durationMs) / 1000,
  })),
  on(
    events.udpSessionStarted,
    'info 3',
    'New UDP connection from client',
    'servicePort remoteAddress:address endpoint',
  ),
  on(
    events.udpSessionEnded,
    'info 3',
    ({ reason }) =>
      reason === 'idle' ? 'connection to endpoint closed due to inactivity' : 'UDP session ended',
    'servicePort remoteAddress:address endpoint datagramsIn datagramsOut reason',
  ),
  on(events.listenerOpened, 'info 2', 'Proxying for service', listener),
  on(events.listenerClosed, 'info 2', 'Stopped listening for service', listener),
  on(events.dataPlaneFault, 'error limited', ({ what }) => FAULTS[what], 'error'),
  // The proxier logs a summary of failures once; these lines are per listener and attempt.
  on(events.listenerFailed, 'error 2 limited', 'Failed to start proxy for service', (event) => ({
    ...listener(event),
    err: event.error,
    code: event.code,
    retryInMs: Math.round(event.retryInMs),
  })),
  on(
    events.sourceRangeInvalid,
    'error limited',
    'Invalid source range; it admits no client',
    'servicePort range',
  ),
  on(
    events.limitChanged,
    'warn limited',
    ({ reached }) => (reached ? 'Limit reached' : 'Below the limit again'),
    'limit value',
  ),
];

function addresses({ servicePort, endpoint, ...event }: events.RelayAddresses) {
  const { inRemoteAddress, inLocalAddress, outLocalAddress, outRemoteAddress } = event;
  const sockets = { inRemoteAddress, inLocalAddress, outLocalAddress, outRemoteAddress };
  return { servicePortName: servicePort, endpoint, ...sockets };
}

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
