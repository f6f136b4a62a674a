/** Events of the proxier, published on diagnostics channels. Build them only for subscribers. */
import type { ErrorCode, KpngError } from '../errors.ts';
import type { PortalSpec } from '../portal/portal.ts';
import type { Protocol } from '../proxysocket/spec.ts';
import { typedChannel } from '../util/channel.ts';

/** A change set is applied: the engine listens, and the portals redirect to it. */
export const proxierSynced = typedChannel<{
  durationMs: number;
  services: number;
  servicePorts: number;
  endpoints: number;
  /** Service ports, by kind of change. */
  added: number;
  removed: number;
  /** Portals, affinity or timeouts changed, or a listen address was gained or lost. */
  changed: number;
  endpointsChanged: number;
}>('proxier:synced');

/** A change set could not be applied; the previous state stays. */
export const proxierSyncFailed = typedChannel<{
  durationMs: number;
  error: KpngError;
}>('proxier:sync-failed');

/** A service port changed, other than in its endpoints. */
export interface ServicePortChange {
  kind: 'added' | 'changed' | 'removed';
  servicePort: string;
  protocol: Protocol;
  portals: readonly PortalSpec[];
}

export const servicePortChanged = typedChannel<ServicePortChange>('proxier:service-port');

/** A problem that prevents part of the state from being proxied. */
export interface Problem {
  readonly code: ErrorCode;
  /** For people: what, where, and how to fix it. */
  readonly message: string;
  /** The first affected service port; undefined: none in particular. */
  readonly servicePort: string | undefined;
  /** Number of affected service ports or addresses. */
  readonly count: number;
}

/** A problem appeared, doubled, halved, or ended. Service ports with the same cause are one problem. */
export interface ProblemChanged {
  kind: 'appeared' | 'changed' | 'gone';
  problem: Problem;
}

export const problemChanged = typedChannel<ProblemChanged>('proxier:problem');
