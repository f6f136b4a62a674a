/** The text files that modules read, by name, and where they are. */
export const TEXT_FILES = {
  'package.json': 'package.json',
  'state-file.schema.json': 'schema/state-file.schema.json',
  'completion/kpng-userspace.bash': 'assets/completion/kpng-userspace.bash',
  'completion/kpng-userspace.zsh': 'assets/completion/kpng-userspace.zsh',
  'completion/kpng-userspace.fish': 'assets/completion/kpng-userspace.fish',
  'completion/kpng-userspace.powershell': 'assets/completion/kpng-userspace.powershell',
  'status-page/page.html': 'assets/status-page/page.html',
  'status-page/style.css': 'assets/status-page/style.css',
  'status-page/dom.js': 'assets/status-page/dom.js',
  'status-page/format.js': 'assets/status-page/format.js',
  'status-page/plot.js': 'assets/status-page/plot.js',
  'status-page/head.js': 'assets/status-page/head.js',
  'status-page/rows.js': 'assets/status-page/rows.js',
  'status-page/details.js': 'assets/status-page/details.js',
  'status-page/main.js': 'assets/status-page/main.js',
} as const;

/** The modules that run in threads, by name, and where they are. */
export const THREADS = {
  'parser-worker': 'src/file/parser-worker.ts',
  'pool-worker': 'src/proxysocket/pool/thread.ts',
} as const;

/** Everything that an executable has inside. */
export const ASSETS: readonly string[] = [...Object.keys(TEXT_FILES), ...Object.keys(THREADS)];
