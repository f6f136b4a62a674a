import { Counter, Gauge, type Registry } from 'prom-client';
import * as portal from '../portal/events.ts';
import type { Subscriptions } from './subscriptions.ts';

/** Adds metrics of the portals that write rules or addresses; others have no samples. */
export function addPortalMetrics(registry: Registry, subscriptions: Subscriptions): void {
  const registers = [registry];
  const up = new Gauge({
    name: 'kpng_userspace_portal_up',
    help: '1 while the packet rules, or the addresses on the interface, are as they should be.',
    labelNames: ['portal'],
    registers,
  });
  const writes = new Counter({
    name: 'kpng_userspace_portal_writes_total',
    help: 'Transactions that changed packet rules or addresses, by reason.',
    labelNames: ['portal', 'reason'],
    registers,
  });
  const failures = new Counter({
    name: 'kpng_userspace_portal_failures_total',
    help: 'Attempts to write packet rules or addresses, or some of them, that failed.',
    labelNames: ['portal', 'code'],
    registers,
  });
  const lost = new Counter({
    name: 'kpng_userspace_portal_lost_total',
    help: 'How often somebody else had removed or changed packet rules or addresses.',
    labelNames: ['portal'],
    registers,
  });
  const shared = new Gauge({
    name: 'kpng_userspace_portal_shared',
    help: '1 while another process leads the same traffic with packet rules of another kind.',
    labelNames: ['portal'],
    registers,
  });
  const duration = new Gauge({
    name: 'kpng_userspace_portal_last_write_duration_seconds',
    help: 'Time that the last transaction took which changed packet rules or addresses.',
    labelNames: ['portal'],
    registers,
  });
  const flows = new Counter({
    name: 'kpng_userspace_portal_flow_failures_total',
    help: 'Attempts to remove remembered UDP flows that failed.',
    labelNames: ['portal', 'code'],
    registers,
  });

  subscriptions.on(portal.portalWritten, ({ portal: kind, reason, durationMs }) => {
    up.set({ portal: kind }, 1);
    writes.inc({ portal: kind, reason });
    duration.set({ portal: kind }, durationMs / 1000);
  });
  subscriptions.on(portal.portalFailed, ({ portal: kind, error }) => {
    failures.inc({ portal: kind, code: error.code });
    // One service port that is left out is a problem of that one.
    if (error.servicePort === undefined) up.set({ portal: kind }, 0);
  });
  subscriptions.on(portal.portalLost, ({ portal: kind }) => {
    up.set({ portal: kind }, 0);
    lost.inc({ portal: kind });
  });
  subscriptions.on(portal.portalShared, ({ portal: kind, error }) => {
    shared.set({ portal: kind }, error === undefined ? 0 : 1);
  });
  subscriptions.on(portal.flowsNotCleared, ({ portal: kind, error }) => {
    flows.inc({ portal: kind, code: error.code });
  });
}
