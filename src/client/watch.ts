import type { KpngError } from '../errors.ts';
import type { OpStream, StreamOp } from './stream.ts';

/** The client's handling of the operations that a server sends. */
export interface ChangeSets<Op extends StreamOp> {
  /** The full data set follows: discards the open change set; every entry is stale until the next one is complete. */
  reset(): void;
  /** Adds an operation to the change set; neither Reset nor Sync. Throws KPNG_STATE_TOO_LARGE. */
  apply(op: Op): void;
  /** The change set is complete. Resolves when it was processed, with an error if it was not accepted. */
  complete(): Promise<KpngError | undefined>;
}

export interface WatchOptions<Op extends StreamOp> {
  readonly sets: ChangeSets<Op>;
  /** Sent with each request. May be empty; then the kpng server treats no endpoint as local. */
  readonly nodeName: string;
  /** A Reset arrived within a change set, after this many operations. */
  readonly onResetWithin: (operations: number) => void;
  /** Return after the first change set. */
  readonly once: boolean;
}

/**
 * Watches one stream: each request yields one change set, and the next request is sent only after the change set was
 * processed. So the server coalesces changes for a slow sink, at no cost to either side.
 *
 * Returns only with `once`, with the result of `complete`; otherwise rejects with the stream's error.
 */
export async function watch<Op extends StreamOp>(
  stream: OpStream<Op>,
  { sets, nodeName, onResetWithin, once }: WatchOptions<Op>,
): Promise<KpngError | undefined> {
  // A server sends Reset unasked. If not, its first change set is the full data anyway, since the stream is new
  // to it.
  sets.reset();
  let opsInChangeSet = 0;
  stream.request(nodeName);
  try {
    for await (const op of stream) {
      switch (op.kind) {
        case 'sync': {
          opsInChangeSet = 0;
          const refused = await sets.complete();
          if (once) return refused;
          stream.request(nodeName);
          break;
        }
        case 'reset':
          if (opsInChangeSet > 0) onResetWithin(opsInChangeSet);
          opsInChangeSet = 0;
          sets.reset();
          break;
        default:
          opsInChangeSet++;
          sets.apply(op);
      }
    }
  } finally {
    // Free the change set's memory until the next connection.
    sets.reset();
  }
  return undefined;
}
