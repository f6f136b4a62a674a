/** Events of the proxier, published on diagnostics channels. Build them only for subscribers. */
import type { ErrorCode, KpngError } from '../errors.ts';
import type { PortalSpec } from '../portal/portal.ts';
import type { Protocol } from '../proxysocket/spec.ts';
import { typedChannel } from '../util/channel.ts';

/** A change set is in place: the engine listens, and the portals redirect to it. */
export interface ProxierSynced {
  durationMs: number;
  /** How many there are now. */
  services: number;
  servicePorts: number;
  endpoints: number;
  /** Service ports, by kind of change. */
  added: number;
  removed: number;
  /** Portals, affinity or times changed, or a place to listen was won or lost. */
  changed: number;
  /** Only the endpoints changed. */
  endpointsChanged: number;
}

/** A change set could not be applied; the previous state stays. */
export interface ProxierSyncFailed {
  durationMs: number;
  error: KpngError;
}

/** Something happened to a service port, other than to its endpoints. */
export interface ServicePortChanged {
  kind: 'added' | 'changed' | 'removed';
  servicePort: string;
  protocol: Protocol;
  portals: readonly PortalSpec[];
}

/** Something that keeps a part of the state from being proxied. */
export interface Problem {
  readonly code: ErrorCode;
  /** For people: what, where, and how to set it right. */
  readonly message: string;
  /** The first service port that it concerns; undefined when it concerns none in particular. */
  readonly servicePort: string | undefined;
  /** How many service ports or addresses it concerns. */
  readonly count: number;
}

/** A problem came up, doubled or halved, or is over. Service ports with the same cause are one problem. */
export interface ProblemChanged {
  kind: 'appeared' | 'changed' | 'gone';
  problem: Problem;
}

export const proxierSynced = typedChannel<ProxierSynced>('proxier:synced');
export const proxierSyncFailed = typedChannel<ProxierSyncFailed>('proxier:sync-failed');
export const servicePortChanged = typedChannel<ServicePortChanged>('proxier:service-port');
export const problemChanged = typedChannel<ProblemChanged>('proxier:problem');
