/** Engines that hold TCP clients of service ports without endpoints. */
import type { Test } from 'tap';
import type { NodeEngineOptions } from '../../src/proxysocket/node/engine.ts';
import { TcpRig } from './tcp-rig.ts';
import { until } from './until.ts';

export const HOUR = 3_600_000;

/** An engine that holds clients for an hour, by default. */
export function holding(t: Test, options: NodeEngineOptions = {}): TcpRig {
  return new TcpRig(t, { ...options, limits: { holdTimeoutMs: HOUR, ...options.limits } });
}

/** Waits until so many clients are held. */
export async function held(rig: TcpRig, count: number): Promise<void> {
  await until(() => rig.counters.held === count);
}
