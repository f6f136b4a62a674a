import { Counter, Gauge, type Registry } from 'prom-client';
import * as kube from '../kube/events.ts';
import type { Subscriptions } from './subscriptions.ts';

/**
 * Adds metrics of the Kubernetes source; with other sources they have no samples. `now` gives
 * milliseconds of any clock that does not go back.
 */
export function addKubeMetrics(
  registry: Registry,
  subscriptions: Subscriptions,
  now: () => number = () => performance.now(),
): void {
  const registers = [registry];
  const events = new Counter({
    name: 'kpng_userspace_kube_events_total',
    help: 'Events of watches, by resource and type.',
    labelNames: ['resource', 'type'],
    registers,
  });
  const lists = new Counter({
    name: 'kpng_userspace_kube_lists_total',
    help: 'Complete lists of a resource, by what made them necessary.',
    labelNames: ['resource', 'cause'],
    registers,
  });
  const watches = new Counter({
    name: 'kpng_userspace_kube_watches_total',
    help: 'Watches that were opened.',
    labelNames: ['resource'],
    registers,
  });
  const failures = new Counter({
    name: 'kpng_userspace_kube_failures_total',
    help: 'Lists and watches that came to nothing, by cause.',
    labelNames: ['resource', 'cause'],
    registers,
  });
  const orphans = new Gauge({
    name: 'kpng_userspace_kube_orphan_slices',
    help: 'EndpointSlices whose Service is not there, or not for this proxy.',
    registers,
  });
  const heardAt = new Map<string, number>();
  const age: Gauge = new Gauge({
    name: 'kpng_userspace_source_last_event_age_seconds',
    help: 'Time since anything came from the source, be it a bookmark.',
    labelNames: ['resource'],
    registers,
    collect() {
      for (const [resource, at] of heardAt) age.set({ resource }, (now() - at) / 1000);
    },
  });

  subscriptions.on(kube.kubeReceived, ({ resource, added, modified, deleted, bookmarks }) => {
    heardAt.set(resource, now());
    const counts = { added, modified, deleted, bookmark: bookmarks };
    for (const [type, count] of Object.entries(counts)) {
      if (count > 0) events.inc({ resource, type }, count);
    }
  });
  subscriptions.on(kube.kubeListed, ({ resource, why }) => {
    heardAt.set(resource, now());
    lists.inc({ resource, cause: why });
  });
  subscriptions.on(kube.kubeWatching, ({ resource }) => {
    heardAt.set(resource, now());
    watches.inc({ resource });
  });
  subscriptions.on(kube.kubeFailed, ({ resource, kind }) =>
    failures.inc({ resource, cause: kind }),
  );
  subscriptions.on(kube.kubeOrphans, ({ count }) => orphans.set(count));
}
