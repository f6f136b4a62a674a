import type { Endpoint, PortName } from '../api/generated/localv1/api.ts';
import { mergeIPSets } from './ip-set.ts';

/**
 * One endpoint with the addresses and ports of two that belong to the same pod: in Kubernetes the two families of a
 * pod arrive in two slices.
 *
 * Undefined when they cannot be merged: they differ in where they are usable, or have different ports under the same
 * name.
 */
export function mergePodEndpoints(a: Endpoint, b: Endpoint): Endpoint | undefined {
  if (a.local !== b.local) return undefined;
  if (a.scopes?.internal !== b.scopes?.internal) return undefined;
  if (a.scopes?.external !== b.scopes?.external) return undefined;
  if (a.scopes?.cluster !== b.scopes?.cluster) return undefined;
  const portOverrides = mergePorts(a.portOverrides, b.portOverrides);
  if (portOverrides === undefined) return undefined;
  return {
    ...a,
    hostname: a.hostname === '' ? b.hostname : a.hostname,
    ips: mergeIPSets(a.ips, b.ips),
    portOverrides,
  };
}

function mergePorts(a: readonly PortName[], b: readonly PortName[]): PortName[] | undefined {
  const merged = [...a];
  for (const override of b) {
    const same = a.find((other) => other.name === override.name);
    if (same === undefined) merged.push(override);
    else if (same.port !== override.port) return undefined;
  }
  return merged;
}
