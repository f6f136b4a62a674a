/** Events of the sinks, published on diagnostics channels. */
import type { KpngError } from '../errors.ts';
import { typedChannel } from '../util/channel.ts';

/** A health-check node port is open to load balancers. */
export const healthCheckServed = typedChannel<{
  /** `namespace/name`. */
  service: string;
  /** `ip:port`. */
  address: string;
}>('health-check:served');

/** It could not be opened. */
export const healthCheckFailed = typedChannel<{
  service: string;
  /** Names the process that holds the port, if known. */
  error: KpngError;
  /** Milliseconds until the next attempt; undefined when another component decides. */
  retryInMs: number | undefined;
}>('health-check:failed');

/** A run of the callout has ended, successfully or not. */
export interface CalloutEnded {
  program: string;
  result: 'ok' | 'start' | 'exit' | 'signal' | 'timeout' | 'output' | 'stopped';
  /** KPNG_CALLOUT_FAILED; undefined if it succeeded or was stopped together with this process. */
  error: KpngError | undefined;
  /** The end of its standard error. */
  stderr: string;
  durationMs: number;
}

export const calloutEnded = typedChannel<CalloutEnded>('callout:ended');

/** A part of a service has no rules for its external IPs. */
export const extipProblem = typedChannel<{
  /** Names the service port. */
  error: KpngError;
}>('extip:problem');

/** Returns a function that selects the problems whose messages were not among those of its previous call. */
export function newProblems(): (problems: readonly KpngError[]) => KpngError[] {
  let known: ReadonlyMap<string, KpngError> = new Map();
  return (problems) => {
    const before = known;
    known = new Map(problems.map((error) => [error.message, error]));
    return [...known.values()].filter(({ message }) => !before.has(message));
  };
}
