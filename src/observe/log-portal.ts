import * as portal from '../portal/events.ts';
import { logRule, type LogRule } from './log-rules.ts';

/** Log lines of the portals that write rules, or addresses. */
export const PORTAL_RULES: readonly LogRule[] = [
  logRule({
    channel: portal.portalWritten,
    severity: 'info',
    v: 0,
    message: ({ portal: kind, reason }) =>
      reason === 'change' ? undefined : wordsFor(kind)[reason],
    keys: written,
    limited: true,
  }),
  logRule({
    channel: portal.portalWritten,
    severity: 'info',
    v: 2,
    message: ({ portal: kind, reason }) =>
      reason === 'change' ? wordsFor(kind).change : undefined,
    keys: written,
  }),
  logRule({
    channel: portal.portalFailed,
    severity: 'error',
    v: 0,
    message: ({ portal: kind }) => wordsFor(kind).failed,
    keys: ({ portal: kind, error }) => ({
      portal: kind,
      ...(error.servicePort !== undefined && { servicePortName: error.servicePort }),
      err: error,
    }),
    limited: true,
  }),
  logRule({
    channel: portal.portalLost,
    severity: 'warn',
    v: 0,
    message: ({ portal: kind }) => wordsFor(kind).lost,
    keys: ({ portal: kind, message }) => ({ portal: kind, reason: message }),
    limited: true,
  }),
  logRule({
    channel: portal.portalShared,
    severity: 'warn',
    v: 0,
    message: ({ error }) =>
      error === undefined ? undefined : 'Another process leads the same traffic',
    keys: ({ portal: kind, error }) => ({ portal: kind, err: error }),
    limited: true,
  }),
  logRule({
    channel: portal.portalShared,
    severity: 'info',
    v: 0,
    message: ({ error }) =>
      error === undefined ? 'No other process leads the same traffic any more' : undefined,
    keys: ({ portal: kind }) => ({ portal: kind }),
    limited: true,
  }),
  logRule({
    channel: portal.flowsCleared,
    severity: 'info',
    v: 2,
    message: 'Removed remembered UDP flows that led to the wrong place',
    keys: ({ portal: kind, places, durationMs }) => ({
      portal: kind,
      places,
      ms: tenths(durationMs),
    }),
  }),
  logRule({
    channel: portal.flowsNotCleared,
    severity: 'warn',
    v: 0,
    message:
      'Remembered UDP flows stay: clients that go on sending may be led astray until they pause',
    keys: ({ portal: kind, error }) => ({ portal: kind, err: error }),
    limited: true,
  }),
];

const RULES = {
  start: 'Wrote the packet rules',
  change: 'Changed the packet rules',
  repair: 'Wrote the packet rules again',
  failed: 'Packet rules could not be written; those that were there stay in force',
  lost: 'Somebody else has removed or changed the packet rules; they are written again',
} as const;

const ADDRESSES = {
  start: 'Put the service addresses on the interface',
  change: 'Changed the service addresses on the interface',
  repair: 'Put the service addresses on the interface again',
  failed: 'Service addresses on the interface could not be changed; those that are there stay',
  lost: 'Somebody else has removed service addresses from the interface; they are added again',
} as const;

function wordsFor(kind: portal.PortalWritten['portal']) {
  return kind === 'address' ? ADDRESSES : RULES;
}

function written({ portal: kind, added, removed, durationMs }: portal.PortalWritten) {
  return { portal: kind, added, removed, ms: tenths(durationMs) };
}

function tenths(ms: number): number {
  return Math.round(ms * 10) / 10;
}
