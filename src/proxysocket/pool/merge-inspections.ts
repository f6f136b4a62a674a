import type { Inspection } from '../inspect.ts';

/** What several workers have found, as if it had been one. */
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
