import { AffinityBudget } from '../../roundrobin/affinity-budget.ts';
import { RoundRobinBalancer } from '../../roundrobin/balancer.ts';
import type { Balancer } from '../../roundrobin/types.ts';
import type { Clock } from '../../util/clock.ts';
import { LimitSignal } from './limit-signal.ts';
import { LIMIT_NAMES, type EngineLimits } from '../limits.ts';
import type { AffinitySpec } from '../spec.ts';

/** Makes the balancers of an engine's service ports. */
export function balancerFactory(
  { maxAffinityClients, maxAffinityClientsTotal }: EngineLimits,
  clock: Clock,
  random: () => number,
): (affinity: AffinitySpec) => Balancer {
  const total = new LimitSignal(LIMIT_NAMES.maxAffinityClientsTotal, () => maxAffinityClientsTotal);
  const affinityBudget = new AffinityBudget({
    maxClients: maxAffinityClientsTotal,
    onEvict: () => total.refused(),
    onFreed: (left) => total.freed(left),
  });
  return (affinity) => {
    const signal = new LimitSignal(LIMIT_NAMES.maxAffinityClients, () => maxAffinityClients);
    return new RoundRobinBalancer({
      clock,
      random,
      affinity,
      maxAffinityClients,
      affinityBudget,
      onEvict: () => signal.refused(),
      onFreed: (left) => signal.freed(left),
    });
  };
}
