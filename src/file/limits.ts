import type { FileWatcherLimits } from '../util/file-watcher.ts';

/** The limits of the state file source in one place. Each has a line in docs/reference/limits.md. */
export interface FileLimits extends FileWatcherLimits {
  /** Longest YAML that is parsed in one piece: a service, or a file that has to be. Characters. */
  readonly maxPieceChars: number;
  /** How deep lists and maps may be nested. */
  readonly maxDepth: number;
  /** How many values the aliases of a file may stand for; 64 characters of text count as one more. */
  readonly maxAliasedValues: number;
  /** Memory for parsing a file. Bytes. */
  readonly maxParserBytes: number;
  /** Time for parsing a file. Milliseconds. */
  readonly maxParseMs: number;
  /** Time that parsing may go on once the file has newer content. Milliseconds. */
  readonly maxOutdatedParseMs: number;
  /** How many problems of a file are listed; the rest is counted. */
  readonly maxProblems: number;
}

export const DEFAULT_FILE_LIMITS: FileLimits = {
  maxFileBytes: 64 * 1024 * 1024,
  maxPieceChars: 32 * 1024 * 1024,
  maxDepth: 100,
  maxAliasedValues: 1_000_000,
  maxParserBytes: 1024 * 1024 * 1024,
  maxParseMs: 60_000,
  maxOutdatedParseMs: 5000,
  maxProblems: 20,
  settleMs: 50,
  maxSettleMs: 1000,
  pollMs: 1000,
};
