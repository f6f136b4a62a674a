import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import { kubeTriggered } from '../kube/events.ts';
import { proxierSynced } from '../proxier/events.ts';
import { sourceSynced } from '../store/events.ts';
import type { Subscriptions } from './subscriptions.ts';

/** kube-proxy's bounds: two quarters of a second, each second of a minute, then coarser to 5 minutes. Seconds. */
const PROGRAMMING_BUCKETS = [
  ...linear(0.25, 0.25, 2),
  ...linear(1, 1, 59),
  ...linear(60, 5, 12),
  ...linear(120, 30, 7),
];

function linear(start: number, width: number, count: number): number[] {
  return Array.from({ length: count }, (_, index) => start + width * index);
}

/** Changes that are waited for; more are not measured. */
const MAX_WAITING = 10_000;
/** A change of which nothing has come for so long changes nothing for this node. Milliseconds. */
const NO_EFFECT_MS = 1000;

/** A change in the cluster that is to be put in place. */
interface Trigger {
  /** Milliseconds since the epoch, by the clock of who made the change. */
  readonly at: number;
  /** When it came here, by our own. */
  readonly receivedAt: number;
}

/**
 * Adds kube-proxy's metrics of how far changes have come, and how long they took from the moment at
 * which they were made in the cluster. `now` gives milliseconds since the epoch.
 */
export function addProgrammingMetrics(
  registry: Registry,
  subscriptions: Subscriptions,
  now: () => number = Date.now,
): void {
  const registers = [registry];
  const programming = new Histogram({
    name: 'kubeproxy_network_programming_duration_seconds',
    help: 'Time from a change of endpoints in the cluster until it is in place here.',
    buckets: PROGRAMMING_BUCKETS,
    registers,
  });
  const queued = new Gauge({
    name: 'kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds',
    help: 'When a change set last came that is to be put in place.',
    registers,
  });
  const pending = new Gauge({
    name: 'kubeproxy_sync_proxy_rules_service_changes_pending',
    help: 'Services whose changes, or those of their endpoints, are not in place yet.',
    registers,
  });
  const services = new Counter({
    name: 'kubeproxy_sync_proxy_rules_service_changes_total',
    help: 'Service ports that were added, changed or removed.',
    registers,
  });
  const endpoints = new Counter({
    name: 'kubeproxy_sync_proxy_rules_endpoint_changes_total',
    help: 'Changes of the endpoints of a service port, and of nothing else of it.',
    registers,
  });
  let waiting: Trigger[] = [];
  let inHand: Trigger[] = [];
  let lastSyncAt = Number.NEGATIVE_INFINITY;

  subscriptions.on(kubeTriggered, ({ times }) => {
    const receivedAt = now();
    for (const at of times) {
      if (waiting.length < MAX_WAITING) waiting.push({ at, receivedAt });
    }
  });
  subscriptions.on(sourceSynced, ({ changed }) => {
    const at = now();
    queued.set(at / 1000);
    pending.set(changed);
    // What has not come by now, though nothing was in its way, concerns other nodes.
    const arrived = waiting.filter(
      ({ receivedAt }) => at - Math.max(receivedAt, lastSyncAt) < NO_EFFECT_MS,
    );
    inHand = [...inHand, ...arrived].slice(0, MAX_WAITING);
    waiting = [];
  });
  subscriptions.on(proxierSynced, (event) => {
    lastSyncAt = now();
    pending.set(0);
    services.inc(event.added + event.changed + event.removed);
    endpoints.inc(event.endpointsChanged);
    for (const { at } of inHand) programming.observe(Math.max(0, lastSyncAt - at) / 1000);
    inHand = [];
  });
}
