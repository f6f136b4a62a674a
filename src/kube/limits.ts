/** The limits of the Kubernetes source in one place. Each has a line in docs/reference/limits.md. */
export const DEFAULT_KUBE_LIMITS = {
  /** Objects in one page of a list. */
  pageSize: 500,
  /** Maximum size of a page; a larger one is requested again with fewer objects. Bytes. */
  maxPageBytes: 64 * 1024 * 1024,
  /** Pages of one list. */
  maxListPages: 10_000,
  /** All pages of one list. Bytes. */
  maxListBytes: 1024 * 1024 * 1024,
  /** Objects of one resource, from a list or added by a watch. */
  maxObjects: 500_000,
  /** Time limit for a list, from its first page to its last. Milliseconds. */
  listTimeoutMs: 600_000,
  /** Interim responses (1xx) that a request may have. */
  maxInterimResponses: 100,
  /** Maximum size of a watch event. Bytes. */
  maxEventBytes: 8 * 1024 * 1024,
  /** Time limit for a response, including the connect. Milliseconds. */
  responseTimeoutMs: 30_000,
  /** Maximum pause within a list. Milliseconds. */
  pauseTimeoutMs: 30_000,
  /** Time limit for fetching credentials, including programs that do so. Milliseconds. */
  credentialsTimeoutMs: 60_000,
  /** Watches are requested with a random timeout in this range. Seconds. */
  watchSeconds: [300, 600] as readonly [number, number],
  /**
   * A watch with bookmarks is closed after this long without data; servers send one about every minute. Milliseconds.
   */
  silenceMs: 150_000,
  /** A watch that lasted this long resets the back-off. Milliseconds. */
  stableMs: 10_000,
  /** Longest delay that a server can request. Milliseconds. */
  maxRetryAfterMs: 300_000,
  /** Maximum delay between attempts while the server is unreachable. Milliseconds. */
  maxOutageWaitMs: 10_000,
};

export type KubeLimits = Readonly<typeof DEFAULT_KUBE_LIMITS>;
