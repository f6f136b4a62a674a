import * as events from '../proxysocket/events.ts';
import type { ListenSpec } from '../proxysocket/spec.ts';
import { formatHostPort } from '../util/host-port.ts';
import { logRule, type LogRule } from './log-rules.ts';

const FAULTS = {
  'worker-lost': 'A data-plane worker has died with all its connections',
  'given-up': 'Data-plane workers have died too often: another engine takes over',
  mistake: 'A mistake of this program cost a connection',
  'events-dropped': 'More happened than could be told',
} as const satisfies Record<events.DataPlaneFault['what'], string>;

/**
 * Log lines of the data path. Messages and keys are those of kpng's Windows userspace backend where
 * it has them, so that searches and dashboards made for it go on working; `servicePortName` is on
 * every line.
 */
export const DATA_PATH_RULES: readonly LogRule[] = [
  logRule({
    channel: events.tcpAccepted,
    severity: 'info',
    v: 3,
    message: 'Accepted TCP connection from remote',
    keys: ({ servicePort, remoteAddress, localAddress }) => ({
      servicePortName: servicePort,
      remoteAddress,
      localAddress,
    }),
  }),
  logRule({
    channel: events.endpointPicked,
    severity: 'info',
    v: 4,
    message: 'NextEndpoint for service',
    keys: ({ servicePort, sourceAddress, endpoints, attempt, sticky }) => ({
      servicePortName: servicePort,
      address: sourceAddress,
      endpoints,
      attempt,
      sticky,
    }),
  }),
  logRule({
    channel: events.endpointPicked,
    severity: 'info',
    v: 3,
    message: 'Mapped service to endpoint',
    keys: ({ servicePort, endpoint }) => ({
      servicePortName: servicePort,
      service: servicePort,
      endpoint,
    }),
  }),
  logRule({
    channel: events.connectFailed,
    severity: 'error',
    v: 0,
    message: 'Dial failed',
    keys: ({ servicePort, endpoint, attempt, cause, error }) => ({
      servicePortName: servicePort,
      endpoint,
      attempt,
      reason: cause,
      err: error,
    }),
    limited: true,
  }),
  logRule({
    channel: events.rejected,
    severity: 'error',
    v: 0,
    message: ({ reason }) => REJECTED[reason],
    keys: ({ servicePort, protocol, remoteAddress, reason }) => ({
      servicePortName: servicePort,
      protocol,
      remoteAddress,
      code: REJECTED_CODES[reason],
    }),
    limited: true,
  }),
  logRule({
    channel: events.rejected,
    severity: 'info',
    v: 2,
    message: ({ reason }) =>
      reason === 'source' ? 'Refused a client outside the source ranges of the service' : undefined,
    keys: ({ servicePort, protocol, remoteAddress }) => ({
      servicePortName: servicePort,
      protocol,
      remoteAddress,
    }),
    limited: true,
  }),
  logRule({
    channel: events.tcpHeld,
    severity: 'info',
    v: 0,
    message: ({ waiting }) =>
      waiting === 1 ? 'A client waits until the service has an endpoint' : undefined,
    keys: ({ servicePort, remoteAddress }) => ({ servicePortName: servicePort, remoteAddress }),
    limited: true,
  }),
  logRule({
    channel: events.tcpHoldEnded,
    severity: 'info',
    v: 3,
    message: 'A client waits no more',
    keys: ({ servicePort, remoteAddress, waiting, durationMs, reason }) => ({
      servicePortName: servicePort,
      remoteAddress,
      waiting,
      durationMs,
      reason,
    }),
  }),
  logRule({
    channel: events.relayStarted,
    severity: 'info',
    v: 4,
    message: 'Creating proxy between remote and local addresses',
    keys: addresses,
  }),
  logRule({
    channel: events.relayStarted,
    severity: 'info',
    v: 4,
    message: 'Copying remote address bytes',
    keys: fromBackend,
  }),
  logRule({
    channel: events.relayStarted,
    severity: 'info',
    v: 4,
    message: 'Copying remote address bytes',
    keys: toBackend,
  }),
  logRule({
    channel: events.relayEnded,
    severity: 'info',
    v: 4,
    message: 'Copied remote address bytes',
    keys: (event) => ({ ...fromBackend(event), bytes: event.bytesOut }),
  }),
  logRule({
    channel: events.relayEnded,
    severity: 'info',
    v: 4,
    message: 'Copied remote address bytes',
    keys: (event) => ({ ...toBackend(event), bytes: event.bytesIn }),
  }),
  logRule({
    channel: events.relayEnded,
    severity: 'info',
    v: 4,
    message: 'Closed proxy between remote and local addresses',
    keys: (event) => ({
      ...addresses(event),
      reason: event.reason,
      seconds: Math.round(event.durationMs) / 1000,
    }),
  }),
  logRule({
    channel: events.udpSessionStarted,
    severity: 'info',
    v: 3,
    message: 'New UDP connection from client',
    keys: ({ servicePort, remoteAddress, endpoint }) => ({
      servicePortName: servicePort,
      address: remoteAddress,
      endpoint,
    }),
  }),
  logRule({
    channel: events.udpSessionEnded,
    severity: 'info',
    v: 3,
    message: ({ reason }) =>
      reason === 'idle' ? 'connection to endpoint closed due to inactivity' : 'UDP session ended',
    keys: ({ servicePort, remoteAddress, endpoint, datagramsIn, datagramsOut, reason }) => ({
      servicePortName: servicePort,
      address: remoteAddress,
      endpoint,
      datagramsIn,
      datagramsOut,
      reason,
    }),
  }),
  logRule({
    channel: events.listenerOpened,
    severity: 'info',
    v: 2,
    message: 'Proxying for service',
    keys: listener,
  }),
  logRule({
    channel: events.listenerClosed,
    severity: 'info',
    v: 2,
    message: 'Stopped listening for service',
    keys: listener,
  }),
  logRule({
    channel: events.dataPlaneFault,
    severity: 'error',
    v: 0,
    message: ({ what }) => FAULTS[what],
    keys: ({ error }) => ({ err: error }),
    limited: true,
  }),
  logRule({
    // The proxier sums up what fails and says it once; this is each listener and each attempt.
    channel: events.listenerFailed,
    severity: 'error',
    v: 2,
    message: 'Failed to start proxy for service',
    keys: (event) => ({
      ...listener(event),
      err: event.error,
      code: event.code,
      retryInMs: Math.round(event.retryInMs),
    }),
    limited: true,
  }),
  logRule({
    channel: events.sourceRangeInvalid,
    severity: 'error',
    v: 0,
    message: 'A source range of the service cannot be read; it lets nobody in',
    keys: ({ servicePort, range }) => ({ servicePortName: servicePort, range }),
    limited: true,
  }),
  logRule({
    channel: events.limitChanged,
    severity: 'warn',
    v: 0,
    message: ({ reached }) => (reached ? 'Limit reached' : 'Below the limit again'),
    keys: ({ limit, value }) => ({ limit, value }),
    limited: true,
  }),
];

const REJECTED = {
  'no-endpoint': "Couldn't find an endpoint for service",
  drained: 'Refused a client because the endpoints are drained',
  'connect-failed': 'Failed to connect to balancer',
  limit: 'Refused a client because a limit is reached',
  source: undefined,
  'hold-timeout': 'No endpoint came for a client that was held',
} as const satisfies Record<events.Rejected['reason'], string | undefined>;

const REJECTED_CODES = {
  'no-endpoint': 'KPNG_NO_ENDPOINT',
  drained: 'KPNG_DRAINED',
  'connect-failed': 'KPNG_CONNECT_FAILED',
  limit: 'KPNG_LIMIT_REACHED',
  source: undefined,
  'hold-timeout': 'KPNG_NO_ENDPOINT',
} as const;

function addresses(event: events.RelayAddresses) {
  return {
    servicePortName: event.servicePort,
    endpoint: event.endpoint,
    inRemoteAddress: event.inRemoteAddress,
    inLocalAddress: event.inLocalAddress,
    outLocalAddress: event.outLocalAddress,
    outRemoteAddress: event.outRemoteAddress,
  };
}

function fromBackend(event: events.RelayAddresses) {
  return {
    servicePortName: event.servicePort,
    direction: 'from backend',
    sourceRemoteAddress: event.outRemoteAddress,
    destinationRemoteAddress: event.inRemoteAddress,
  };
}

function toBackend(event: events.RelayAddresses) {
  return {
    servicePortName: event.servicePort,
    direction: 'to backend',
    sourceRemoteAddress: event.inRemoteAddress,
    destinationRemoteAddress: event.outRemoteAddress,
  };
}

function listener({ servicePort, protocol, listen }: events.ListenerOpened) {
  return {
    servicePortName: servicePort,
    protocol,
    address: address(listen),
    traffic: listen.traffic,
  };
}

function address({ address, port }: ListenSpec): string {
  return formatHostPort({ host: address, port });
}
