import type { FileReport, SkippedTest } from './tap-report.ts';

/** Words for systems in skip reasons, and Node's names of them. */
const SYSTEMS: ReadonlyMap<string, NodeJS.Platform> = new Map([
  ['linux', 'linux'],
  ['windows', 'win32'],
  ['macos', 'darwin'],
]);

/**
 * Whether a test may be skipped where everything has to run: only when its reason reads
 * `only on linux` (or windows, or macos) and this is another system.
 */
export function mayBeSkipped(reason: string, platform: NodeJS.Platform): boolean {
  const word = /^only on (\w+)/i.exec(reason)?.[1]?.toLowerCase();
  const system = word === undefined ? undefined : SYSTEMS.get(word);
  return system !== undefined && system !== platform;
}

/**
 * Turns the skips of a file that have no excuse into failures. `strict` is set in CI; elsewhere a
 * skip stays a skip.
 */
export function judgeSkips(
  report: FileReport,
  strict: boolean,
  platform: NodeJS.Platform,
): { report: FileReport; refused: readonly SkippedTest[] } {
  const refused = strict ? report.skips.filter((skip) => !mayBeSkipped(skip.reason, platform)) : [];
  if (refused.length === 0) return { report, refused };
  const { skipped, failed } = report;
  return {
    report: { ...report, skipped: skipped - refused.length, failed: failed + refused.length },
    refused,
  };
}
