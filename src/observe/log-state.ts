import type { ErrorCode } from '../errors.ts';
import type { PortalSpec } from '../portal/portal.ts';
import * as proxier from '../proxier/events.ts';
import * as store from '../store/events.ts';
import { formatHostPort } from '../util/host-port.ts';
import { logRule, type LogRule } from './log-rules.ts';

/** Log lines of sources and of the proxier: what state came, and what was made of it. */
export const STATE_RULES: readonly LogRule[] = [
  logRule({
    channel: store.sourceConnected,
    severity: 'info',
    v: 0,
    message: 'Connected to the source',
    keys: ({ source }) => ({ source }),
    limited: true,
  }),
  logRule({
    channel: store.sourceDisconnected,
    severity: 'warn',
    v: 0,
    message: ({ error }) => AWAY[error.code] ?? 'The source is away; what is in place stays',
    keys: ({ source, error, retryInMs }) => ({
      source,
      err: error,
      retryInMs: Math.round(retryInMs),
    }),
    limited: true,
  }),
  logRule({
    channel: store.sourceSynced,
    severity: 'info',
    v: 2,
    message: 'Received a complete state',
    keys: ({ source, services, changed }) => ({ source, services, changed }),
  }),
  logRule({
    channel: store.opInvalid,
    severity: 'error',
    v: 0,
    message: 'The source sent something that cannot be used; it is skipped',
    keys: ({ source, error }) => ({ source, err: error }),
    limited: true,
  }),
  logRule({
    channel: store.sinkFailed,
    severity: 'error',
    v: 0,
    message: 'A change could not be carried out; it is tried again',
    keys: ({ error, waiting, retryInMs }) => ({
      err: error,
      waiting,
      retryInMs: Math.round(retryInMs),
    }),
    limited: true,
  }),
  logRule({
    channel: store.sinkRecovered,
    severity: 'info',
    v: 0,
    message: 'Changes are carried out again',
    keys: ({ failures }) => ({ failures }),
    limited: true,
  }),
  logRule({
    channel: proxier.problemChanged,
    severity: 'warn',
    v: 0,
    message: ({ kind }) => (kind === 'gone' ? undefined : PROBLEM[kind]),
    keys: ({ problem }) => ({
      err: problem.message,
      code: problem.code,
      ...(problem.servicePort !== undefined && { servicePortName: problem.servicePort }),
      count: problem.count,
    }),
    limited: true,
  }),
  logRule({
    channel: proxier.problemChanged,
    severity: 'info',
    v: 0,
    message: ({ kind }) => (kind === 'gone' ? PROBLEM.gone : undefined),
    keys: ({ problem }) => ({
      was: problem.message,
      ...(problem.servicePort !== undefined && { servicePortName: problem.servicePort }),
    }),
    limited: true,
  }),
  logRule({
    channel: proxier.servicePortChanged,
    severity: 'info',
    v: 1,
    message: ({ kind }) => SERVICE_PORT[kind],
    keys: ({ servicePort, protocol, portals }) => ({
      servicePortName: servicePort,
      protocol,
      addresses: portals.map(portalText),
    }),
  }),
  logRule({
    channel: proxier.proxierSynced,
    severity: 'info',
    v: 2,
    message: 'userspace syncProxyRules complete',
    keys: ({ durationMs, ...numbers }) => ({ ...numbers, ms: Math.round(durationMs * 10) / 10 }),
  }),
];

const AWAY: Partial<Record<ErrorCode, string>> = {
  KPNG_KUBE_UNAUTHORIZED: 'The Kubernetes API does not accept us; what is in place stays',
  KPNG_KUBE_FORBIDDEN: 'The Kubernetes API forbids something; what is in place stays',
};

const PROBLEM = {
  appeared: 'A part of the state cannot be proxied',
  changed: 'A part of the state still cannot be proxied',
  gone: 'A part of the state can be proxied again',
} as const;

const SERVICE_PORT = {
  added: 'Adding new service',
  changed: 'Something changed for service',
  removed: 'Stopping service',
} as const;

function portalText({ kind, address, port }: PortalSpec): string {
  return `${kind} ${address === undefined ? `:${port}` : formatHostPort({ host: address, port })}`;
}
