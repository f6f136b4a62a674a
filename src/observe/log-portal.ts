import * as portal from '../portal/events.ts';
import { logRule, type LogRule } from './log-rules.ts';

/** Log lines of the portals that write rules. */
export const PORTAL_RULES: readonly LogRule[] = [
  logRule({
    channel: portal.portalWritten,
    severity: 'info',
    v: 0,
    message: ({ reason }) => (reason === 'change' ? undefined : WRITTEN[reason]),
    keys: written,
    limited: true,
  }),
  logRule({
    channel: portal.portalWritten,
    severity: 'info',
    v: 2,
    message: ({ reason }) => (reason === 'change' ? 'Changed the packet rules' : undefined),
    keys: written,
  }),
  logRule({
    channel: portal.portalFailed,
    severity: 'error',
    v: 0,
    message: 'Packet rules could not be written; those that were there stay in force',
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
    message: 'Somebody else has removed or changed the packet rules; they are written again',
    keys: ({ portal: kind, message }) => ({ portal: kind, reason: message }),
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

const WRITTEN = {
  start: 'Wrote the packet rules',
  repair: 'Wrote the packet rules again',
} as const;

function written({ portal: kind, added, removed, durationMs }: portal.PortalWritten) {
  return { portal: kind, added, removed, ms: tenths(durationMs) };
}

function tenths(ms: number): number {
  return Math.round(ms * 10) / 10;
}
