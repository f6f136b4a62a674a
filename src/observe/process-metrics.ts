import { stat } from 'node:fs/promises';
import { collectDefaultMetrics, Gauge, Registry } from 'prom-client';

/**
 * prom-client's default metrics with constant cost. Left out are those that list every handle or descriptor: with a
 * hundred thousand connections they would stop the event loop at each scrape.
 */
export const PROCESS_METRICS = [
  'process_cpu_user_seconds_total',
  'process_cpu_system_seconds_total',
  'process_cpu_seconds_total',
  'process_start_time_seconds',
  'process_resident_memory_bytes',
  'process_virtual_memory_bytes',
  'process_heap_bytes',
  'process_max_fds',
  'nodejs_eventloop_lag_seconds',
  'nodejs_eventloop_lag_min_seconds',
  'nodejs_eventloop_lag_max_seconds',
  'nodejs_eventloop_lag_mean_seconds',
  'nodejs_eventloop_lag_stddev_seconds',
  'nodejs_eventloop_lag_p50_seconds',
  'nodejs_eventloop_lag_p90_seconds',
  'nodejs_eventloop_lag_p99_seconds',
  'nodejs_heap_size_total_bytes',
  'nodejs_heap_size_used_bytes',
  'nodejs_external_memory_bytes',
  'nodejs_version_info',
  'nodejs_gc_duration_seconds',
] as const;

/** Interval of measuring the event loop lag. Milliseconds. */
const LAG_PRECISION_MS = 20;

/** Adds the metrics of this process to a registry, as far as the system provides them. */
export function addProcessMetrics(registry: Registry): void {
  const everything = new Registry();
  collectDefaultMetrics({ register: everything, eventLoopMonitoringPrecision: LAG_PRECISION_MS });
  for (const name of PROCESS_METRICS) {
    const metric = everything.getSingleMetric(name);
    if (metric !== undefined) registry.registerMetric(metric);
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
