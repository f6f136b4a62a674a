import * as portal from '../portal/events.ts';
import type { PortalSpec } from '../portal/portal.ts';
import * as proxier from '../proxier/events.ts';
import * as sinks from '../sinks/events.ts';
import { formatHostPort } from '../util/host-port.ts';
import { logRule, type LogRule } from './log-rules.ts';

/** Log lines of the proxier, the portals and the small sinks. */
export const SINK_RULES: readonly LogRule[] = [
  logRule(
    'warn limited',
    proxier.problemChanged,
    ({ kind }) => (kind === 'gone' ? undefined : PROBLEM[kind]),
    ({ problem }) => ({
      err: problem.message,
      code: problem.code,
      servicePortName: problem.servicePort,
      count: problem.count,
    }),
  ),
  logRule(
    'info limited',
    proxier.problemChanged,
    ({ kind }) => (kind === 'gone' ? PROBLEM.gone : undefined),
    ({ problem }) => ({ was: problem.message, servicePortName: problem.servicePort }),
  ),
  logRule(
    'info 1',
    proxier.servicePortChanged,
    ({ kind }) => SERVICE_PORT[kind],
    ({ servicePort, protocol, portals }) => ({
      servicePortName: servicePort,
      protocol,
      addresses: portals.map(portalText),
    }),
  ),
  logRule(
    'info 2',
    proxier.proxierSynced,
    'userspace syncProxyRules complete',
    ({ durationMs, ...numbers }) => ({ ...numbers, ms: tenths(durationMs) }),
  ),
  logRule(
    'info limited',
    portal.portalWritten,
    ({ portal: kind, reason }) => (reason === 'change' ? undefined : textsOf(kind)[reason]),
    written,
  ),
  logRule(
    'info 2',
    portal.portalWritten,
    ({ portal: kind, reason }) => (reason === 'change' ? textsOf(kind).change : undefined),
    written,
  ),
  logRule(
    'error limited',
    portal.portalFailed,
    ({ portal: kind }) => textsOf(kind).failed,
    'portal error',
  ),
  logRule(
    'warn limited',
    portal.portalLost,
    ({ portal: kind }) => textsOf(kind).lost,
    'portal message:reason',
  ),
  logRule(
    'warn limited',
    portal.portalShared,
    ({ error }) => error && 'Another process redirects the same traffic',
    'portal error',
  ),
  logRule(
    'info limited',
    portal.portalShared,
    ({ error }) =>
      error === undefined ? 'No other process redirects the same traffic any more' : undefined,
    'portal',
  ),
  logRule(
    'info 2',
    portal.flowsCleared,
    'Removed stale UDP conntrack entries',
    ({ portal: kind, addresses, durationMs }) => ({
      portal: kind,
      addresses,
      ms: tenths(durationMs),
    }),
  ),
  logRule(
    'warn limited',
    portal.flowsNotCleared,
    'Removing stale UDP conntrack entries failed; UDP clients may reach old endpoints until they pause',
    'portal error',
  ),
  logRule(
    'info 1',
    sinks.healthCheckServed,
    'Serving health-check node port',
    'service:servicePortName address',
  ),
  logRule(
    'error limited',
    sinks.healthCheckFailed,
    'Serving health-check node port failed',
    'service:servicePortName error retryInMs',
  ),
  logRule(
    'error limited',
    sinks.calloutEnded,
    ({ error }) => error && 'Callout failed',
    'error stderr durationMs',
  ),
  logRule(
    'info 1',
    sinks.calloutEnded,
    ({ result }) => {
      if (result === 'ok') return 'Callout completed';
      return result === 'stopped' ? 'Callout stopped' : undefined;
    },
    'program stderr durationMs',
  ),
  logRule(
    'error limited',
    sinks.extipProblem,
    'No external-IP rule created for service port',
    'error',
  ),
];

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

const RULE_TEXTS = {
  start: 'Packet rules written',
  change: 'Packet rules changed',
  repair: 'Packet rules repaired',
  failed: 'Writing packet rules failed; previous rules stay in force',
  lost: 'Packet rules were removed or changed by another program; rewriting them',
} as const;

const ADDRESS_TEXTS = {
  start: 'Service addresses added to the interface',
  change: 'Service addresses on the interface changed',
  repair: 'Service addresses on the interface repaired',
  failed: 'Changing service addresses on the interface failed; present addresses stay',
  lost: 'Service addresses were removed from the interface by another program; adding them again',
} as const;

function textsOf(kind: portal.PortalWritten['portal']) {
  return kind === 'address' ? ADDRESS_TEXTS : RULE_TEXTS;
}

function written({ portal: kind, added, removed, durationMs }: portal.PortalWritten) {
  return { portal: kind, added, removed, ms: tenths(durationMs) };
}

function tenths(ms: number): number {
  return Math.round(ms * 10) / 10;
}
