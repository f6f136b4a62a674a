const TCP = [
  'back-pressure',
  'connect',
  'half-close',
  'held',
  'limits',
  'proxy-protocol',
  'reset',
  'torture',
].map((name) => `test/proxysocket/tcp/${name}.test.ts`);

const ENGINE = ['engine', 'new-process', 'inspect', 'live-limits'].map(
  (name) => `test/proxysocket/${name}.test.ts`,
);

const UDP = ['endpoints', 'limits', 'listener', 'sessions'].map(
  (name) => `test/proxysocket/udp/${name}.test.ts`,
);

/** Test files that run once more against the `linux` engine; see test/support/engine-under-test.ts. */
export const WITH_LINUX: readonly string[] = [...TCP, ...UDP, ...ENGINE];

/** And those that run once more with only what Node documents. */
export const DOCUMENTED: readonly string[] = [...TCP, 'test/proxysocket/engine.test.ts'];

/** What the `linux` engine needs of the system and of Node. */
export function hasLinuxEngine(platform: NodeJS.Platform, nodeVersion: string): boolean {
  return platform === 'linux' && Number(/^v?(\d+)/.exec(nodeVersion)?.[1]) >= 26;
}
