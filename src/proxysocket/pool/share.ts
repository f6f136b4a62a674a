import type { EngineLimits } from '../limits.ts';

/** What each worker gets of the limits that are for all service ports together; others as they are. */
export function shareOfLimits<Limits extends Partial<EngineLimits>>(
  limits: Limits,
  workers: number,
): Limits {
  const part = (limit: number): number => Math.max(1, Math.floor(limit / workers));
  const { maxConnections, maxHeldConnections, maxUdpSessions, bulkBufferBudget } = limits;
  const { maxAffinityClientsTotal } = limits;
  return {
    ...limits,
    ...(maxConnections !== undefined && { maxConnections: part(maxConnections) }),
    ...(maxHeldConnections !== undefined && { maxHeldConnections: part(maxHeldConnections) }),
    ...(maxUdpSessions !== undefined && { maxUdpSessions: part(maxUdpSessions) }),
    ...(maxAffinityClientsTotal !== undefined && {
      maxAffinityClientsTotal: part(maxAffinityClientsTotal),
    }),
    ...(bulkBufferBudget !== undefined && {
      bulkBufferBudget: Math.floor(bulkBufferBudget / workers),
    }),
  };
}

/** How many descriptors each worker may count with; the reserve is that of all of them. */
export function shareOfDescriptors(limit: number, reserve: number, workers: number): number {
  return reserve + Math.floor(Math.max(0, limit - reserve) / workers);
}
