/** Events of the portals, published on diagnostics channels. Build them only for subscribers. */
import type { KpngError } from '../errors.ts';
import { typedChannel } from '../util/channel.ts';
import type { Portal } from './portal.ts';

type Kind = Portal['kind'];

/** Rules are in place. */
export interface PortalWritten {
  portal: Kind;
  /**
   * `start`: everything, the first time. `change`: the difference. `repair`: everything, after damage or a failure.
   */
  reason: 'start' | 'change' | 'repair';
  /** Elements or rules that differ from what was last written; at the start, from nothing. */
  added: number;
  removed: number;
  durationMs: number;
}

/** Rules could not be written. The previous rules stay in force. */
export interface PortalFailed {
  portal: Kind;
  error: KpngError;
}

/** Rules were removed by another program. They are being repaired. */
export interface PortalLost {
  portal: Kind;
  /** The damage. */
  message: string;
}

/** Whether other processes redirect the same traffic with rules of another kind. Published when it changes. */
export interface PortalShared {
  portal: Kind;
  /** The other processes, with the code KPNG_PORTAL_SHARED; undefined: none any more. */
  error: KpngError | undefined;
}

/** Stale UDP flows were removed from connection tracking. */
export interface FlowsCleared {
  portal: Kind;
  /** Addresses whose flows were to be removed. */
  addresses: number;
  durationMs: number;
}

/** Remembered UDP flows could not be removed: a few clients may have to wait until theirs time out. */
export interface FlowsNotCleared {
  portal: Kind;
  error: KpngError;
}

export const portalWritten = typedChannel<PortalWritten>('portal:written');
export const portalFailed = typedChannel<PortalFailed>('portal:failed');
export const portalLost = typedChannel<PortalLost>('portal:lost');
export const portalShared = typedChannel<PortalShared>('portal:shared');
export const flowsCleared = typedChannel<FlowsCleared>('portal:flows-cleared');
export const flowsNotCleared = typedChannel<FlowsNotCleared>('portal:flows-not-cleared');
