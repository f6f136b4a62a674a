import { Counter, type Registry } from 'prom-client';
import { dataPlaneFault } from '../proxysocket/events.ts';
import type { Subscriptions } from './subscriptions.ts';

/** Adds how often something went wrong inside an engine whose sockets are in threads of their own. */
export function addFaultMetrics(registry: Registry, subscriptions: Subscriptions): void {
  const faults = new Counter({
    name: 'kpng_userspace_engine_faults_total',
    help: 'Faults inside the engine: threads that died, mistakes that cost a connection.',
    labelNames: ['what'],
    registers: [registry],
  });
  subscriptions.on(dataPlaneFault, ({ what }) => faults.inc({ what }));
}
