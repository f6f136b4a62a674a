/** Test files that run once more against another engine; see test/support/engine-under-test.ts. */
export interface EnginePass {
  readonly engine: 'linux';
  readonly files: readonly string[];
}

const TCP = [
  'back-pressure',
  'connect',
  'half-close',
  'held',
  'held-limits',
  'integrity',
  'limits',
  'lost-endpoint',
  'reset',
  'vectors',
].map((name) => `test/proxysocket/tcp/${name}.test.ts`);

const ENGINE = [
  'engine-life',
  'engine-live',
  'new-process',
  'inspect',
  'live-limits',
  'torture',
].map((name) => `test/proxysocket/${name}.test.ts`);

const UDP = ['endpoints', 'limits', 'listener', 'overload', 'payload', 'sessions'].map(
  (name) => `test/proxysocket/udp/${name}.test.ts`,
);

const PASSES: readonly EnginePass[] = [{ engine: 'linux', files: [...TCP, ...UDP, ...ENGINE] }];

/** What the `linux` engine needs of the system and of Node. */
export function hasLinuxEngine(platform: NodeJS.Platform, nodeVersion: string): boolean {
  return platform === 'linux' && Number(/^v?(\d+)/.exec(nodeVersion)?.[1]) >= 26;
}

/** The passes to be made when these files and folders were asked for; none means everything. */
export function enginePasses(paths: readonly string[]): readonly EnginePass[] {
  const isWanted = (file: string): boolean =>
    paths.length === 0 ||
    paths.some((path) => file === path || file.startsWith(`${path.replace(/\/$/, '')}/`));
  return PASSES.map(({ engine, files }) => ({ engine, files: files.filter(isWanted) })).filter(
    ({ files }) => files.length > 0,
  );
}
