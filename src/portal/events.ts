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

export const portalWritten = typedChannel<PortalWritten>('portal:written');
export const portalFailed = typedChannel<PortalFailed>('portal:failed');
/** Another program removed rules. They are being repaired. */
export const portalLost = typedChannel<{ portal: Kind; message: string }>('portal:lost');
/**
 * Other processes redirect the same traffic with rules of another kind. `error` describes them, with the code
 * KPNG_PORTAL_SHARED; undefined: none any more. Published on change.
 */
export const portalShared = typedChannel<{ portal: Kind; error: KpngError | undefined }>(
  'portal:shared',
);
/** Stale UDP flows were removed from connection tracking. `addresses`: whose flows were to be removed. */
export const flowsCleared = typedChannel<{ portal: Kind; addresses: number; durationMs: number }>(
  'portal:flows-cleared',
);
/** Stale UDP flows could not be removed: a few clients may have to wait until theirs time out. */
export const flowsNotCleared = typedChannel<PortalFailed>('portal:flows-not-cleared');
