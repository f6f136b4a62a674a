import { RoundRobinBalancer } from '../../roundrobin/balancer.ts';
import type { Balancer } from '../../roundrobin/types.ts';
import type { Clock } from '../../util/clock.ts';
import { LimitSignal } from './limit-signal.ts';
import { LIMIT_NAMES, type EngineLimits } from '../limits.ts';
import type { AffinitySpec } from '../spec.ts';

/** Makes the balancers of an engine's service ports. */
export function balancerFactory(
  { maxAffinityClients }: EngineLimits,
  clock: Clock,
  random: () => number,
): (affinity: AffinitySpec) => Balancer {
  return (affinity) => {
    const signal = new LimitSignal(LIMIT_NAMES.maxAffinityClients, () => maxAffinityClients);
    return new RoundRobinBalancer({
      clock,
      random,
      affinity,
      maxAffinityClients,
      onEvict: () => signal.refused(),
      onFreed: (left) => signal.freed(left),
    });
  };
}
