import type { Registry } from 'prom-client';
import type { ServicePortSnapshot } from '../proxysocket/engine.ts';
import { limitChanged } from '../proxysocket/events.ts';
import { LIMIT_NAMES, type EngineLimits } from '../proxysocket/limits.ts';
import { counter, gauge, registerTable } from './metric-table.ts';
import type { Subscriptions } from './subscriptions.ts';

const TABLE = {
  kpng_userspace_limit: gauge(
    'The limits, by the name of their flag. Times in seconds, sizes in bytes.',
    'limit',
  ),
  kpng_userspace_limit_used: gauge('How much of a limit is used now.', 'limit'),
  kpng_userspace_limit_reached_total: counter('Times that a limit was reached.', 'limit'),
};

/** Registers the metrics of the limits. Returns the function that updates them, for a scrape. */
export function addLimitMetrics(
  registry: Registry,
  subscriptions: Subscriptions,
  limits: EngineLimits,
): (servicePorts: readonly ServicePortSnapshot[]) => void {
  const all = registerTable(registry, TABLE);
  subscriptions.on(limitChanged, ({ limit, reached }) => {
    if (reached) all.kpng_userspace_limit_reached_total.inc({ limit });
  });
  return (servicePorts) => {
    // Some limits may change while the program runs.
    for (const [key, limit] of Object.entries(LIMIT_NAMES)) {
      all.kpng_userspace_limit.set({ limit }, baseUnits(key, limits[key as keyof EngineLimits]));
    }
    const used = { TCP: 0, UDP: 0, held: 0 };
    for (const { protocol, counters } of servicePorts) {
      used[protocol] += counters.active;
      used.held += counters.held;
    }
    const set = (limit: string, value: number): void =>
      all.kpng_userspace_limit_used.set({ limit }, value);
    set(LIMIT_NAMES.maxConnections, used.TCP + used.held);
    set(LIMIT_NAMES.maxHeldConnections, used.held);
    set(LIMIT_NAMES.maxUdpSessions, used.UDP);
  };
}

/** Milliseconds as seconds; a list of times as their sum. */
function baseUnits(key: string, value: number | readonly number[]): number {
  const total = typeof value === 'number' ? value : value.reduce((sum, each) => sum + each, 0);
  return key.endsWith('Ms') ? total / 1000 : total;
}
