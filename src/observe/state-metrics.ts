import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import * as file from '../file/events.ts';
import { problemChanged, proxierSynced, proxierSyncFailed } from '../proxier/events.ts';
import * as store from '../store/events.ts';
import type { Subscriptions } from './subscriptions.ts';

/** Bounds of kube-proxy's histogram of sync times: 1 ms and 14 doublings. Seconds. */
const SYNC_BUCKETS = Array.from({ length: 15 }, (_, power) => 0.001 * 2 ** power);

/**
 * Adds metrics of sources and of the proxier. The numbers are few and change seldom, so they are
 * counted as the events come. `now` gives milliseconds since the epoch.
 */
export function addStateMetrics(
  registry: Registry,
  subscriptions: Subscriptions,
  now: () => number = Date.now,
): void {
  addSourceMetrics(registry, subscriptions, now);
  addFileMetrics(registry, subscriptions, now);
  addSyncMetrics(registry, subscriptions, now);
}

function addSourceMetrics(
  registry: Registry,
  subscriptions: Subscriptions,
  now: () => number,
): void {
  const counter = (name: string, help: string): Counter =>
    new Counter({ name, help, registers: [registry] });
  const gauge = (name: string, help: string): Gauge =>
    new Gauge({ name, help, registers: [registry] });

  const connected = gauge(
    'kpng_userspace_source_connected',
    '1 while the server is reached, or the state file is good.',
  );
  const connects = counter(
    'kpng_userspace_source_connects_total',
    'How often the source was reached; all but the first are reconnects.',
  );
  const failures = counter(
    'kpng_userspace_source_failures_total',
    'Connections to the source lost, and attempts to get one that failed.',
  );
  const syncs = counter(
    'kpng_userspace_source_syncs_total',
    'Complete change sets received from the source.',
  );
  const lastSync = gauge(
    'kpng_userspace_source_last_sync_timestamp_seconds',
    'When the last complete change set came.',
  );
  const services = gauge('kpng_userspace_source_services', 'Services in the state of the source.');
  const invalid = counter(
    'kpng_userspace_source_invalid_ops_total',
    'Things that the source sent and that could not be used.',
  );
  const sinkFailures = counter(
    'kpng_userspace_sink_failures_total',
    'Change sets that were not carried out; they are tried again.',
  );

  subscriptions.on(store.sourceConnected, () => {
    connected.set(1);
    connects.inc();
  });
  subscriptions.on(store.sourceDisconnected, () => {
    connected.set(0);
    failures.inc();
  });
  for (const good of [file.fileLoaded, file.fileRecovered]) {
    subscriptions.on<object>(good, () => connected.set(1));
  }
  for (const bad of [file.fileInvalid, file.fileReadFailed]) {
    subscriptions.on<object>(bad, () => connected.set(0));
  }
  subscriptions.on(store.sourceSynced, (event) => {
    syncs.inc();
    lastSync.set(now() / 1000);
    services.set(event.services);
  });
  subscriptions.on(store.opInvalid, () => invalid.inc());
  subscriptions.on(store.sinkFailed, () => sinkFailures.inc());
}

function addFileMetrics(registry: Registry, subscriptions: Subscriptions, now: () => number): void {
  const registers = [registry];
  const loads = new Counter({
    name: 'kpng_userspace_file_loads_total',
    help: 'How often a good state file was loaded.',
    registers,
  });
  const failures = new Counter({
    name: 'kpng_userspace_file_failures_total',
    help: 'How often the state file could not be read or had errors, by code.',
    labelNames: ['code'],
    registers,
  });
  const last = new Gauge({
    name: 'kpng_userspace_file_last_load_timestamp_seconds',
    help: 'When a good state file was last loaded.',
    registers,
  });
  const failed = ({ error }: { error: { code: string } }): void =>
    failures.inc({ code: error.code });

  subscriptions.on(file.fileLoaded, () => {
    loads.inc();
    last.set(now() / 1000);
  });
  subscriptions.on(file.fileInvalid, failed);
  subscriptions.on(file.fileReadFailed, failed);
}

/** The names are kube-proxy's where it has them. */
function addSyncMetrics(registry: Registry, subscriptions: Subscriptions, now: () => number): void {
  const registers = [registry];
  const duration = new Histogram({
    name: 'kubeproxy_sync_proxy_rules_duration_seconds',
    help: 'Time that it took to put a change set in place.',
    buckets: SYNC_BUCKETS,
    registers,
  });
  const last = new Gauge({
    name: 'kubeproxy_sync_proxy_rules_last_timestamp_seconds',
    help: 'When a change set was last put in place.',
    registers,
  });
  const failures = new Counter({
    name: 'kpng_userspace_sync_failures_total',
    help: 'Change sets that could not be put in place.',
    registers,
  });
  const servicePorts = new Gauge({
    name: 'kpng_userspace_service_ports',
    help: 'Service ports that are proxied.',
    registers,
  });
  const problems = new Counter({
    name: 'kpng_userspace_problems_total',
    help: 'Problems that kept a part of the state from being proxied, by code.',
    labelNames: ['code'],
    registers,
  });

  subscriptions.on(proxierSynced, (event) => {
    duration.observe(event.durationMs / 1000);
    last.set(now() / 1000);
    servicePorts.set(event.servicePorts);
  });
  subscriptions.on(proxierSyncFailed, () => failures.inc());
  subscriptions.on(problemChanged, ({ kind, problem }) => {
    if (kind === 'appeared') problems.inc({ code: problem.code });
  });
}
