import type { ProxySubject } from './subject.ts';
import { snapshotParts } from '../observe/parts.ts';
import { inTurns, type Parts } from './parts.ts';

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
  engine: Pick<ProxySubject['engine'], 'snapshot' | 'names' | 'inspect'>,
  signal?: AbortSignal,
): Promise<Failing> {
  const servicePorts = await inTurns(suspects(engine), signal);
  if (servicePorts.length === 0) return NONE_FAILING;
  const { endpoints } = await engine.inspect({ servicePorts, maxConnections: 0 });
  return groupFailing(endpoints);
}

/** Service ports of which an attempt to connect has failed. */
function* suspects(engine: Pick<ProxySubject['engine'], 'snapshot' | 'names'>): Parts<string[]> {
  const found: string[] = [];
  for (const part of snapshotParts(engine)) {
    for (const { name, counters } of part) {
      if (!Object.values(counters.connectErrors).some((count) => count > 0)) continue;
      if (found.push(name) === MAX_ASKED) return found;
    }
    yield;
  }
  return found;
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
