/** The limits of the Kubernetes source in one place. Each has a line in docs/reference/limits.md. */
export const DEFAULT_KUBE_LIMITS = {
  /** Objects in one page of a list. */
  pageSize: 500,
  /** Largest page that is accepted; a larger one is requested again with fewer objects. Bytes. */
  maxPageBytes: 64 * 1024 * 1024,
  /** Pages of one list. */
  maxListPages: 10_000,
  /** All pages of one list. Bytes. */
  maxListBytes: 1024 * 1024 * 1024,
  /** How long a list may take, from its first page to its last. Milliseconds. */
  listTimeoutMs: 600_000,
  /** Objects of one resource, of a list and those that a watch adds to it. */
  maxObjects: 500_000,
  /** Answers before the answer (1xx) that a request may have. */
  maxInterimResponses: 100,
  /** Largest event of a watch. Bytes. */
  maxEventBytes: 8 * 1024 * 1024,
  /** How long the server may take to answer a request, connect included. Milliseconds. */
  responseTimeoutMs: 30_000,
  /** How long a list may pause in the middle. Milliseconds. */
  pauseTimeoutMs: 30_000,
  /** How long credentials may take, which includes programs that fetch them. Milliseconds. */
  credentialsTimeoutMs: 60_000,
  /** Watches are requested with a random timeout in this range. Seconds. */
  watchSeconds: [300, 600] as readonly [number, number],
  /**
   * A watch on which bookmarks have come is closed after so long without anything; servers send one
   * about each minute. Milliseconds.
   */
  silenceMs: 150_000,
  /** A watch that lasted this long resets the back-off. Milliseconds. */
  stableMs: 10_000,
  /** Longest delay that a server can request. Milliseconds. */
  maxRetryAfterMs: 300_000,
  /** The longest wait between attempts while the server cannot be reached. Milliseconds. */
  maxOutageWaitMs: 10_000,
};

export type KubeLimits = Readonly<typeof DEFAULT_KUBE_LIMITS>;
