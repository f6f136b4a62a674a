import * as portal from '../portal/events.ts';
import type { PortalSpec } from '../portal/portal.ts';
import * as proxier from '../proxier/events.ts';
import * as sinks from '../sinks/events.ts';
import { formatHostPort } from '../util/host-port.ts';
import { on, type LogRule } from './log-rules.ts';

/** Log lines of the proxier, the portals and the small sinks. */
export const SINK_RULES: readonly LogRule[] = [
  on(
    proxier.problemChanged,
    'warn limited',
    ({ kind }) => (kind === 'gone' ? undefined : PROBLEM[kind]),
    ({ problem }) => ({
      err: problem.message,
      code: problem.code,
      servicePortName: problem.servicePort,
      count: problem.count,
    }),
  ),
  on(
    proxier.problemChanged,
    'info limited',
    ({ kind }) => (kind === 'gone' ? PROBLEM.gone : undefined),
    ({ problem }) => ({ was: problem.message, servicePortName: problem.servicePort }),
  ),
  on(
    proxier.servicePortChanged,
    'info 1',
    ({ kind }) => SERVICE_PORT[kind],
    ({ servicePort, protocol, portals }) => ({
      servicePortName: servicePort,
      protocol,
      addresses: portals.map(portalText),
    }),
  ),
  on(
    proxier.proxierSynced,
    'info 2',
    'userspace syncProxyRules complete',
    ({ durationMs, ...numbers }) => ({ ...numbers, ms: tenths(durationMs) }),
  ),
  on(
    portal.portalWritten,
    'info limited',
    ({ portal: kind, reason }) => (reason === 'change' ? undefined : textsOf(kind)[reason]),
    written,
  ),
  on(
    portal.portalWritten,
    'info 2',
    ({ portal: kind, reason }) => (reason === 'change' ? textsOf(kind).change : undefined),
    written,
  ),
  on(
    portal.portalFailed,
    'error limited',
    ({ portal: kind }) => textsOf(kind).failed,
    'portal error',
  ),
  on(
    portal.portalLost,
    'warn limited',
    ({ portal: kind }) => textsOf(kind).lost,
    'portal message:reason',
  ),
  on(
    portal.portalShared,
    'warn limited',
    ({ error }) => error && 'Another process redirects the same traffic',
    'portal error',
  ),
  on(
    portal.portalShared,
    'info limited',
    ({ error }) =>
      error === undefined ? 'No other process redirects the same traffic any more' : undefined,
    'portal',
  ),
  on(
    portal.flowsCleared,
    'info 2',
    'Removed stale UDP conntrack entries',
    ({ portal: kind, addresses, durationMs }) => ({
      portal: kind,
      addresses,
      ms: tenths(durationMs),
    }),
  ),
  on(
    portal.flowsNotCleared,
    'warn limited',
    'Removing stale UDP conntrack entries failed; UDP clients may reach old endpoints until they pause',
    'portal error',
  ),
  on(
    sinks.healthCheckServed,
    'info 1',
    'Serving health-check node port',
    'service:servicePortName address',
  ),
  on(
    sinks.healthCheckFailed,
    'error limited',
    'Serving health-check node port failed',
    'service:servicePortName error retryInMs',
  ),
  on(
    sinks.calloutEnded,
    'error limited',
    ({ error }) => error && 'Callout failed',
    'error stderr durationMs',
  ),
  on(
    sinks.calloutEnded,
    'info 1',
    ({ result }) => {
      if (result === 'ok') return 'Callout completed';
      return result === 'stopped' ? 'Callout stopped' : undefined;
    },
    'program stderr durationMs',
  ),
  on(sinks.extipProblem, 'error limited', 'No external-IP rule created for service port', 'error'),
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
