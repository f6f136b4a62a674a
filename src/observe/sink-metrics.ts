import { Counter, Gauge, type Registry } from 'prom-client';
import { calloutEnded } from '../sinks/events.ts';
import type { Subscriptions } from './subscriptions.ts';

/** Adds metrics of the small sinks. `now` gives milliseconds since the epoch. */
export function addSinkMetrics(
  registry: Registry,
  subscriptions: Subscriptions,
  now: () => number = Date.now,
): void {
  const registers = [registry];
  const runs = new Counter({
    name: 'kpng_userspace_callout_runs_total',
    help: 'Times that the callout was run, by how that ended.',
    labelNames: ['result'],
    registers,
  });
  const success = new Gauge({
    name: 'kpng_userspace_callout_last_success_timestamp_seconds',
    help: 'When the callout last ended well.',
    registers,
  });
  const duration = new Gauge({
    name: 'kpng_userspace_callout_last_duration_seconds',
    help: 'Time that the last run of the callout took.',
    registers,
  });
  subscriptions.on(calloutEnded, ({ result, durationMs }) => {
    runs.inc({ result });
    duration.set(durationMs / 1000);
    if (result === 'ok') success.set(now() / 1000);
  });
}
