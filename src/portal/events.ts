/** Events of the portals, published on diagnostics channels. */
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
  /** Elements or rules that differ from the last write; at the start, all of them. */
  added: number;
  removed: number;
  durationMs: number;
}

/** Rules could not be written. The previous rules stay in force. */
export interface PortalFailed {
  portal: Kind;
  error: KpngError;
}

/** Another program removed rules. They are being repaired. */
export interface PortalLost {
  portal: Kind;
  message: string;
}

/** Other processes that redirect the same traffic with rules of another kind. Published on change. */
export interface PortalShared {
  portal: Kind;
  /** Describes the other processes, with the code KPNG_PORTAL_SHARED; undefined: none any more. */
  error: KpngError | undefined;
}

/** Stale UDP flows were removed from connection tracking. */
export interface FlowsCleared {
  portal: Kind;
  /** Addresses whose flows were to be removed. */
  addresses: number;
  durationMs: number;
}

export const portalWritten = typedChannel<PortalWritten>('portal:written');
export const portalFailed = typedChannel<PortalFailed>('portal:failed');
export const portalLost = typedChannel<PortalLost>('portal:lost');
export const portalShared = typedChannel<PortalShared>('portal:shared');
export const flowsCleared = typedChannel<FlowsCleared>('portal:flows-cleared');
/** Stale UDP flows could not be removed: a few clients may have to wait until theirs time out. */
export const flowsNotCleared = typedChannel<PortalFailed>('portal:flows-not-cleared');
