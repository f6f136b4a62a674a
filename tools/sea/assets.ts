/** The text files that modules read, by name, and where they are. */
export const TEXT_FILES = {
  'package.json': 'package.json',
  'state-file.schema.json': 'schema/state-file.schema.json',
} as const;

/** The modules that run in threads, by name, and where they are. */
export const THREADS = {
  'parser-worker': 'src/file/parser-worker.ts',
  'plane-worker': 'src/proxysocket/linux/worker/main.ts',
  'handover-worker': 'src/handover/worker.ts',
} as const;

/** Everything that an executable has inside. */
export const ASSETS: readonly string[] = [...Object.keys(TEXT_FILES), ...Object.keys(THREADS)];
