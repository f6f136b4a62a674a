import type { DrainingEngine } from './drains.ts';

/** Service ports whose endpoints are asked for to judge a list, at most. */
export const MAX_ASKED = 1000;

/** By service port: its endpoints that are passed over now, as `ip:port`, as connections to them failed. */
export type Failing = ReadonlyMap<string, ReadonlySet<string>>;

export const NONE_FAILING: Failing = new Map();

/**
 * Asks the engine, once, which endpoints refuse. Only service ports with an attempt to connect that failed can
 * have one, so that a list of thousands that are well costs nothing.
 */
export async function failingOf(
  engine: Pick<DrainingEngine, 'snapshot' | 'inspect'>,
): Promise<Failing> {
  const servicePorts: string[] = [];
  for (const { name, counters } of engine.snapshot()) {
    if (!Object.values(counters.connectErrors).some((count) => count > 0)) continue;
    if (servicePorts.push(name) === MAX_ASKED) break;
  }
  if (servicePorts.length === 0) return NONE_FAILING;
  const { endpoints } = await engine.inspect({ servicePorts, maxConnections: 0 });
  return groupFailing(endpoints);
}

/** Those of some endpoints that fail, by service port. */
export function groupFailing(
  endpoints: readonly {
    readonly servicePort: string;
    readonly endpoint: string;
    readonly failing: boolean;
  }[],
): Failing {
  const failing = new Map<string, Set<string>>();
  for (const { servicePort, endpoint, failing: fails } of endpoints) {
    if (!fails) continue;
    const group = failing.get(servicePort);
    if (group === undefined) failing.set(servicePort, new Set([endpoint]));
    else group.add(endpoint);
  }
  return failing;
}
