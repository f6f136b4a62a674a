/** The limits of the Kubernetes source in one place. Each has a line in docs/reference/limits.md. */
export interface KubeLimits {
  /** Objects in one page of a list. */
  readonly pageSize: number;
  /** Largest page that is taken; a larger one is asked for again with fewer objects in it. Bytes. */
  readonly maxPageBytes: number;
  /** Pages of one list. */
  readonly maxListPages: number;
  /** All pages of one list. Bytes. */
  readonly maxListBytes: number;
  /** How long a list may take, from its first page to its last. Milliseconds. */
  readonly listTimeoutMs: number;
  /** Objects of one resource, of a list and those that a watch adds to it. */
  readonly maxObjects: number;
  /** Answers before the answer (1xx) that a request may have. */
  readonly maxInterimAnswers: number;
  /** Largest event of a watch. Bytes. */
  readonly maxEventBytes: number;
  /** How long the server may take to answer a request, connect included. Milliseconds. */
  readonly answerTimeoutMs: number;
  /** How long a list may pause in the middle. Milliseconds. */
  readonly pauseTimeoutMs: number;
  /** How long credentials may take, which includes programs that fetch them. Milliseconds. */
  readonly credentialsTimeoutMs: number;
  /** Watches are asked to end by themselves after a random time in this range. Seconds. */
  readonly watchSeconds: readonly [number, number];
  /**
   * A watch on which bookmarks have come is closed after so long without anything; servers send one
   * about each minute. Milliseconds.
   */
  readonly silenceMs: number;
  /** A watch that lasted so long was a good one: waits begin again with the first. Milliseconds. */
  readonly stableMs: number;
  /** No wait that a server asks for is longer. Milliseconds. */
  readonly maxRetryAfterMs: number;
  /** The longest wait between attempts while the server cannot be reached. Milliseconds. */
  readonly maxOutageWaitMs: number;
}

export const DEFAULT_KUBE_LIMITS: KubeLimits = {
  pageSize: 500,
  maxPageBytes: 64 * 1024 * 1024,
  maxListPages: 10_000,
  maxListBytes: 1024 * 1024 * 1024,
  listTimeoutMs: 600_000,
  maxObjects: 500_000,
  maxInterimAnswers: 100,
  maxEventBytes: 8 * 1024 * 1024,
  answerTimeoutMs: 30_000,
  pauseTimeoutMs: 30_000,
  credentialsTimeoutMs: 60_000,
  watchSeconds: [300, 600],
  silenceMs: 150_000,
  stableMs: 10_000,
  maxRetryAfterMs: 300_000,
  maxOutageWaitMs: 10_000,
};
