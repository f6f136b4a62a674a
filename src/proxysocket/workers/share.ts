import type { EngineLimits } from '../limits.ts';

/** What each of several engines gets of the limits that are of all service ports together; others as they are. */
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
