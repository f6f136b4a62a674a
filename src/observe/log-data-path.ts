import * as events from '../proxysocket/events.ts';
import { formatHostPort } from '../util/host-port.ts';
import { logRule, type LogRule } from './log-rules.ts';

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
  logRule(
    'info 3',
    events.tcpAccepted,
    'Accepted TCP connection from remote',
    'servicePort remoteAddress localAddress',
  ),
  logRule(
    'info 4',
    events.endpointPicked,
    'NextEndpoint for service',
    'servicePort sourceAddress:address endpoints attempt sticky',
  ),
  logRule(
    'info 3',
    events.endpointPicked,
    'Mapped service to endpoint',
    'servicePort servicePort:service endpoint',
  ),
  logRule(
    'error limited',
    events.connectFailed,
    'Dial failed',
    'servicePort endpoint attempt cause:reason error',
  ),
  logRule(
    'error limited',
    events.rejected,
    ({ reason }) => REJECTED[reason][0],
    ({ servicePort, protocol, remoteAddress, reason }) => ({
      servicePortName: servicePort,
      protocol,
      remoteAddress,
      code: REJECTED[reason][1],
    }),
  ),
  logRule(
    'info 2 limited',
    events.rejected,
    ({ reason }) =>
      reason === 'source' ? 'Client refused: outside the source ranges of the service' : undefined,
    'servicePort protocol remoteAddress',
  ),
  logRule(
    'info limited',
    events.tcpHeld,
    ({ waiting }) =>
      waiting === 1 ? 'Holding client until the service has an endpoint' : undefined,
    'servicePort remoteAddress',
  ),
  logRule(
    'info 3',
    events.tcpHoldEnded,
    'Client no longer held',
    'servicePort remoteAddress waiting durationMs:durationMs reason',
  ),
  logRule(
    'info 4',
    events.relayStarted,
    'Creating proxy between remote and local addresses',
    addresses,
  ),
  logRule('info 4', events.relayStarted, 'Copying remote address bytes', (event) => [
    oneWay(event, 'from backend'),
    oneWay(event, 'to backend'),
  ]),
  logRule('info 4', events.relayEnded, 'Copied remote address bytes', (event) => [
    { ...oneWay(event, 'from backend'), bytes: event.bytesOut },
    { ...oneWay(event, 'to backend'), bytes: event.bytesIn },
  ]),
  logRule(
    'info 4',
    events.relayEnded,
    'Closed proxy between remote and local addresses',
    (event) => ({
      ...addresses(event),
      reason: event.reason,
      seconds: Math.round(event.durationMs) / 1000,
    }),
  ),
  logRule(
    'info 3',
    events.udpSessionStarted,
    'New UDP connection from client',
    'servicePort remoteAddress:address endpoint',
  ),
  logRule(
    'info 3',
    events.udpSessionEnded,
    ({ reason }) =>
      reason === 'idle' ? 'connection to endpoint closed due to inactivity' : 'UDP session ended',
    'servicePort remoteAddress:address endpoint datagramsIn datagramsOut reason',
  ),
  logRule('info 2', events.listenerOpened, 'Proxying for service', listener),
  logRule('info 2', events.listenerClosed, 'Stopped listening for service', listener),
  logRule('error limited', events.dataPlaneFault, ({ what }) => FAULTS[what], 'error'),
  // The proxier logs a summary of failures once; these lines are per listener and attempt.
  logRule(
    'error 2 limited',
    events.listenerFailed,
    'Failed to start proxy for service',
    (event) => ({
      ...listener(event),
      err: event.error,
      code: event.code,
      retryInMs: Math.round(event.retryInMs),
    }),
  ),
  logRule(
    'error limited',
    events.sourceRangeInvalid,
    'Invalid source range; it admits no client',
    'servicePort range',
  ),
  logRule(
    'warn limited',
    events.limitChanged,
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
