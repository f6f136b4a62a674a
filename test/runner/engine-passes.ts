/** Test files that run once more against another engine; see test/support/engine-under-test.ts. */
export interface EnginePass {
  readonly engine: 'linux' | 'workers' | 'node-workers' | 'inline';
  readonly files: readonly string[];
}

const TCP = [
  'back-pressure',
  'connect',
  'half-close',
  'held',
  'held-limits',
  'integrity',
  'leaks',
  'limits',
  'loops',
  'lost-endpoint',
  'reset',
  'vectors',
].map((name) => `test/proxysocket/tcp/${name}.test.ts`);

const ENGINE = ['engine-life', 'engine-live', 'heir', 'inspect', 'live-limits', 'torture'].map(
  (name) => `test/proxysocket/${name}.test.ts`,
);

const UDP = [
  'circles',
  'endpoints',
  'events',
  'limits',
  'listener',
  'overload',
  'payload',
  'sessions',
  'shares',
].map((name) => `test/proxysocket/udp/${name}.test.ts`);

/** Several of the `linux` or the `node` engine that share their places: what may be different then. */
const WORKERS = [
  'engine-live',
  'engine-life',
  'heir',
  'inspect',
  'live-limits',
  'tcp/held',
  'tcp/held-limits',
  'tcp/limits',
  'tcp/lost-endpoint',
  'tcp/reset',
].map((name) => `test/proxysocket/${name}.test.ts`);

const PASSES: readonly EnginePass[] = [
  { engine: 'linux', files: [...TCP, ...ENGINE, 'test/proxier/taken-ports.test.ts'] },
  { engine: 'workers', files: WORKERS },
  { engine: 'node-workers', files: WORKERS },
  // These look into the books of sessions, which only works within a thread.
  { engine: 'inline', files: UDP },
];

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
