import type { KpngError } from '../errors.ts';

/** A complete change set, as frames in the order of the wire, without Reset and Sync. */
export type ChangeSet = Iterable<Buffer>;

/** Where one client stands in the state, and what it has not been told yet. */
export interface Reader {
  /**
   * The change set that brings the client to the newest state; undefined when there is nothing to
   * tell, or nothing may be told yet. The first one may be empty. It has to be iterated to its end, or
   * the reader closed, before the next call.
   */
  next(nodeName: string): ChangeSet | undefined;
  /** Idempotent. */
  close(): void;
}

export interface ReaderOptions {
  /** The reader has been closed, as it lags too far behind. Called while the state is being changed. */
  readonly onEvicted: (error: KpngError) => void;
}

/** Makes readers of one kind, which share what is worked out for them. */
export interface Readers {
  open(options: ReaderOptions): Reader;
}
