import { Counter, Gauge, type Registry } from 'prom-client';
import { limitChanged } from '../proxysocket/events.ts';
import type { ServicePortSnapshot } from '../proxysocket/engine.ts';
import { LIMIT_NAMES, type EngineLimits, type LimitName } from '../proxysocket/limits.ts';
import type { Subscriptions } from './subscriptions.ts';

/**
 * Adds each limit, how much of it is used where that can be told, and how often it was reached.
 * Returns the function that brings them up to date, for a scrape.
 */
export function addLimitMetrics(
  registry: Registry,
  subscriptions: Subscriptions,
  limits: EngineLimits,
): (servicePorts: readonly ServicePortSnapshot[]) => void {
  const values = new Gauge({
    name: 'kpng_userspace_limit',
    help: 'The limits, by the name of their flag. Times in seconds, sizes in bytes.',
    labelNames: ['limit'],
    registers: [registry],
  });
  const used = new Gauge({
    name: 'kpng_userspace_limit_used',
    help: 'How much of a limit is used now.',
    labelNames: ['limit'],
    registers: [registry],
  });
  const reached = new Counter({
    name: 'kpng_userspace_limit_reached_total',
    help: 'How often a limit was reached.',
    labelNames: ['limit'],
    registers: [registry],
  });
  subscriptions.on(limitChanged, (event) => {
    if (event.reached) reached.inc({ limit: event.limit });
  });
  return (servicePorts) => {
    // Some may change while the program runs.
    for (const [limit, value] of Object.entries(limitValues(limits))) values.set({ limit }, value);
    const { tcp, udp, held } = active(servicePorts);
    used.set({ limit: LIMIT_NAMES.maxConnections }, tcp + held);
    used.set({ limit: LIMIT_NAMES.maxHeldConnections }, held);
    used.set({ limit: LIMIT_NAMES.maxUdpSessions }, udp);
  };
}

/** The limits by public name, in base units. A list of times counts as their sum. */
function limitValues(limits: EngineLimits): Record<LimitName, number> {
  return {
    [LIMIT_NAMES.maxConnections]: limits.maxConnections,
    [LIMIT_NAMES.maxUdpSessions]: limits.maxUdpSessions,
    [LIMIT_NAMES.reservedDescriptors]: limits.reservedDescriptors,
    [LIMIT_NAMES.connectTimeoutsMs]: sum(limits.connectTimeoutsMs) / 1000,
    [LIMIT_NAMES.halfCloseTimeoutMs]: limits.halfCloseTimeoutMs / 1000,
    [LIMIT_NAMES.holdTimeoutMs]: limits.holdTimeoutMs / 1000,
    [LIMIT_NAMES.maxHeldConnections]: limits.maxHeldConnections,
    [LIMIT_NAMES.endpointGraceMs]: limits.endpointGraceMs / 1000,
    [LIMIT_NAMES.keepAliveMs]: limits.keepAliveMs / 1000,
    [LIMIT_NAMES.udpIdleTimeoutMs]: limits.udpIdleTimeoutMs / 1000,
    [LIMIT_NAMES.bulkBufferBudget]: limits.bulkBufferBudget,
    [LIMIT_NAMES.udpSocketBuffer]: limits.udpSocketBuffer,
    [LIMIT_NAMES.udpSendQueueBytes]: limits.udpSendQueueBytes,
    [LIMIT_NAMES.udpWildcardSockets]: limits.udpWildcardSockets,
    [LIMIT_NAMES.backlog]: limits.backlog,
    [LIMIT_NAMES.maxAffinityClients]: limits.maxAffinityClients,
    [LIMIT_NAMES.maxAffinityClientsTotal]: limits.maxAffinityClientsTotal,
  };
}

interface Use {
  readonly tcp: number;
  readonly udp: number;
  readonly held: number;
}

function active(servicePorts: readonly ServicePortSnapshot[]): Use {
  let held = 0;
  let tcp = 0;
  let udp = 0;
  for (const { protocol, counters } of servicePorts) {
    held += counters.held;
    if (protocol === 'TCP') tcp += counters.active;
    else udp += counters.active;
  }
  return { tcp, udp, held };
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
