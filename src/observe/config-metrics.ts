import { Counter, Gauge, type Registry } from 'prom-client';
import * as config from '../config/events.ts';
import type { Subscriptions } from './subscriptions.ts';

/** Adds metrics of the configuration file. `now` gives milliseconds since the epoch. */
export function addConfigMetrics(
  registry: Registry,
  subscriptions: Subscriptions,
  now: () => number = Date.now,
): void {
  const registers = [registry];
  const reloads = new Counter({
    name: 'kpng_userspace_config_reloads_total',
    help: 'How often the configuration file was read again, by result.',
    labelNames: ['result'],
    registers,
  });
  const last = new Gauge({
    name: 'kpng_userspace_config_last_reload_timestamp_seconds',
    help: 'When a good configuration file was last read again.',
    registers,
  });
  const pending = new Gauge({
    name: 'kpng_userspace_config_pending_settings',
    help: 'Settings of the configuration file that take effect only when the program starts again.',
    registers,
  });
  subscriptions.on(config.configReloaded, ({ refused }) => {
    reloads.inc({ result: 'ok' });
    last.set(now() / 1000);
    pending.set(refused.length);
  });
  subscriptions.on(config.configFailed, () => reloads.inc({ result: 'failed' }));
}
