/** The limits of the state file source in one place. Each has a line in docs/reference/limits.md. */
export const DEFAULT_FILE_LIMITS = {
  /** Largest file that is read. Bytes. */
  maxFileBytes: 64 * 1024 * 1024,
  /** Longest YAML that is parsed in one piece: a service, or a file that cannot be split. Characters. */
  maxPieceChars: 32 * 1024 * 1024,
  /** How deep lists and maps may be nested. */
  maxDepth: 100,
  /** Maximum number of values that the aliases of a file expand to; 64 characters of text count as one more. */
  maxAliasedValues: 1_000_000,
  /** Memory for parsing a file. Bytes. */
  maxParserBytes: 1024 * 1024 * 1024,
  /** Time for parsing a file. Milliseconds. */
  maxParseMs: 60_000,
  /** Maximum number of listed problems; the rest is counted. */
  maxProblems: 20,
  /** A change is read once the file has been quiet for this long. Milliseconds. */
  settleMs: 50,
  /** A file that keeps changing is read after this long anyway. Milliseconds. */
  maxSettleMs: 1000,
  /** Interval of the checks of the file's status. Milliseconds. */
  pollMs: 1000,
};

export type FileLimits = Readonly<typeof DEFAULT_FILE_LIMITS>;
