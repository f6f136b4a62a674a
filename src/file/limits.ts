/** The limits of the state file source in one place. Each has a line in docs/limits.md. */
export interface FileLimits {
  /** Largest file that is read. Bytes. */
  readonly maxFileBytes: number;
  /** How many problems of a file are listed; the rest is counted. */
  readonly maxProblems: number;
  /** How many YAML values a file may have after its aliases are filled in. */
  readonly maxAliasedValues: number;
  /**
   * Longest text that becomes one tree of YAML values: a file that cannot be cut into its services. The
   * tree takes about a hundred times the memory. Characters.
   */
  readonly maxTreeChars: number;
  /** Memory for parsing a file. Bytes. */
  readonly maxParserBytes: number;
  /** A change is read once the file has been quiet for this long. Milliseconds. */
  readonly settleMs: number;
  /** A file that never is quiet is read after this long all the same. Milliseconds. */
  readonly maxSettleMs: number;
  /** How often the file is looked at when the system tells of no change. Milliseconds. */
  readonly pollMs: number;
}

export const DEFAULT_FILE_LIMITS: FileLimits = {
  maxFileBytes: 64 * 1024 * 1024,
  maxProblems: 20,
  maxAliasedValues: 1_000_000,
  maxTreeChars: 8 * 1024 * 1024,
  maxParserBytes: 2 * 1024 * 1024 * 1024,
  settleMs: 50,
  maxSettleMs: 1000,
  pollMs: 1000,
};
