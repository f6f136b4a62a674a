import { Counter, type Registry } from 'prom-client';
import { operationsSent } from '../server/events.ts';
import { sourceSynced, storeWritten } from '../store/events.ts';
import type { Subscriptions } from './subscriptions.ts';

/** Adds the two metrics that kpng itself has, under its names, for dashboards that know them. */
export function addKpngMetrics(registry: Registry, subscriptions: Subscriptions): void {
  const registers = [registry];
  const events = new Counter({
    name: 'kpng_k8s_api_events_total',
    help: 'Times that a source wrote to the state of the cluster, whether that changed anything or not.',
    registers,
  });
  const operations = new Counter({
    name: 'kpng_node_local_events_total',
    help: 'Operations told to clients of the API and to backends of this process, of both APIs.',
    registers,
  });
  subscriptions.on(storeWritten, () => events.inc());
  subscriptions.on(operationsSent, (event) => operations.inc(event.operations));
  subscriptions.on(sourceSynced, (event) => operations.inc(event.operations ?? 0));
}
