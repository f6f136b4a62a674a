import * as portal from '../portal/events.ts';
import type { PortalSpec } from '../portal/portal.ts';
import * as proxier from '../proxier/events.ts';
import * as sinks from '../sinks/events.ts';
import { formatHostPort } from '../util/host-port.ts';
import { on, type LogLine, type LogRule } from './log-rules.ts';

/** Log lines of the proxier, the portals and the small sinks. */
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
];

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
