import { addTo, newCounters } from '../counters.ts';
import type { ServicePortSnapshot } from '../engine.ts';
import type { Inspection } from '../inspect.ts';
import type { ListenerStatus, ServicePortSpec } from '../spec.ts';

/**
 * What several engines tell of the service ports that they share. `leaderOf` says whose listeners
 * count; `specs` what they were asked for.
 */
export function mergeSnapshots(
  parts: readonly (readonly ServicePortSnapshot[])[],
  specs: ReadonlyMap<string, ServicePortSpec>,
  leaderOf: (name: string) => number,
): ServicePortSnapshot[] {
  const merged = new Map<string, { snapshot: ServicePortSnapshot; isLeader: boolean }>();
  for (const [index, snapshots] of parts.entries()) {
    for (const snapshot of snapshots) {
      const isLeader = index === leaderOf(snapshot.name);
      const former = merged.get(snapshot.name);
      if (former === undefined) {
        // Of our own: what engines tell may be what they count with.
        const counters = newCounters();
        addTo(counters, snapshot.counters);
        merged.set(snapshot.name, { snapshot: { ...snapshot, counters }, isLeader });
        continue;
      }
      const { draining: _, ...base } = isLeader ? snapshot : former.snapshot;
      const { counters } = former.snapshot;
      addTo(counters, snapshot.counters);
      const draining = former.snapshot.draining === true && snapshot.draining === true;
      merged.set(snapshot.name, {
        snapshot: { ...base, counters, ...(draining && { draining }) },
        isLeader: isLeader || former.isLeader,
      });
    }
  }
  return Array.from(merged.values(), ({ snapshot }) => {
    const spec = specs.get(snapshot.name);
    const listeners = snapshot.listeners.map((status) => asAsked(status, spec));
    return { ...snapshot, listeners };
  });
}

/** With the listen of whoever asked, who knows of no groups. */
function asAsked(status: ListenerStatus, spec: ServicePortSpec | undefined): ListenerStatus {
  const { address, port, traffic } = status.listen;
  const listen = spec?.listen.find(
    (each) => each.address === address && each.port === port && each.traffic === traffic,
  );
  return listen === undefined ? status : { ...status, listen };
}

/** What several engines have found, as if it had been one. */
export function mergeInspections(parts: readonly Inspection[], maxConnections: number): Inspection {
  const endpoints = new Map<string, Inspection['endpoints'][number]>();
  for (const each of parts.flatMap((part) => part.endpoints)) {
    const key = `${each.servicePort} ${each.endpoint}`;
    const former = endpoints.get(key);
    endpoints.set(key, {
      ...each,
      active: each.active + (former?.active ?? 0),
      failing: each.failing || former?.failing === true,
    });
  }
  return {
    connections: parts
      .flatMap(({ connections }) => connections)
      .sort((one, other) => other.ageMs - one.ageMs)
      .slice(0, maxConnections),
    matched: parts.reduce((sum, { matched }) => sum + matched, 0),
    complete: parts.every(({ complete }) => complete),
    endpoints: [...endpoints.values()],
  };
}
