import { stat } from 'node:fs/promises';
import { collectDefaultMetrics, Gauge, Registry } from 'prom-client';

/** Of prom-client's default metrics, those that list every handle or descriptor, and those of each heap space. */
const LEFT_OUT = /^(?:nodejs_active_|nodejs_heap_space_|process_open_fds$)/;

/** Interval of measuring the event loop lag. Milliseconds. */
const LAG_PRECISION_MS = 20;

/**
 * Adds the metrics of this process to a registry, as far as the system provides them: those with constant cost. With a
 * hundred thousand connections, the others would stop the event loop at each scrape.
 */
export function addProcessMetrics(registry: Registry): void {
  const everything = new Registry();
  collectDefaultMetrics({ register: everything, eventLoopMonitoringPrecision: LAG_PRECISION_MS });
  for (const { name } of everything.getMetricsAsArray()) {
    const metric = everything.getSingleMetric(name);
    if (metric !== undefined && !LEFT_OUT.test(name)) registry.registerMetric(metric);
  }
  registry.registerMetric(
    new Gauge({
      name: 'process_open_fds',
      help: 'Number of open file descriptors; absent where the system does not count them.',
      registers: [],
      async collect() {
        const count = await openDescriptors();
        if (count !== undefined) this.set(count);
      },
    }),
  );
}

/**
 * Since Linux 6.2 the size of this directory is the number of open descriptors. Before that it is 0, and listing them
 * would be too expensive.
 */
async function openDescriptors(): Promise<number | undefined> {
  try {
    const { size } = await stat('/proc/self/fd');
    return size > 0 ? size : undefined;
  } catch {
    return undefined;
  }
}
