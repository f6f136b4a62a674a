/** Limits of configuration files; each has a line in docs/reference/limits.md. */
export const CONFIG_LIMITS = {
  /** Largest file that is read. Bytes. */
  maxFileBytes: 256 * 1024,
  /** How deep objects and lists may be nested. */
  maxDepth: 8,
  /** Keys and values of a document, with aliases expanded. */
  maxValues: 2000,
  /** YAML documents in a file. */
  maxDocuments: 10,
  /** Time for reading a changed file in its thread. Milliseconds. */
  maxParseMs: 5000,
  /** Memory for reading a changed file in its thread. Bytes. */
  maxParserBytes: 256 * 1024 * 1024,
  /** A change is read once the file has been quiet for this long. Milliseconds. */
  settleMs: 200,
  /** A file that keeps changing is read after this long anyway. Milliseconds. */
  maxSettleMs: 1000,
  /** How often the file is checked when the system reports no change. Milliseconds. */
  pollMs: 10_000,
} as const;
