/**
 * `npm run test:deploy`: what is shipped beside the program, checked with the tools that users have: kubectl, helm,
 * promtool, systemd, shells, builders of images, npm.
 *
 *     npm run test:deploy                                          all
 *     npm run test:deploy -- test/deploy/checks/rendered.test.ts   only these
 *     npm run test:deploy -- prepare                               only brings the tools
 *
 * Brings the tools that Debian has not (see support/toolbox.ts). A test whose tool is missing is skipped, and fails
 * with CI=true.
 */
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { oneFile, runTests, tallyLine, type Tally } from '../runner/tap.ts';
import { prepare } from './support/toolbox.ts';

const root = join(import.meta.dirname, '..', '..');

async function main(paths: readonly string[]): Promise<boolean> {
  const total: Tally = { passed: 0, failed: 0, skipped: 0 };
  const problems = await prepare();
  if (problems.length > 0) {
    process.stdout.write(`some tools could not be brought:\n${problems.join('\n')}\n`);
  }
  if (paths[0] === 'prepare') return problems.length === 0;
  const files = paths.length > 0 ? paths : globSync('test/deploy/checks/*.test.ts', { cwd: root });
  const strict = process.env['CI'] === 'true';
  // Images are built, be it on a machine with much else to do.
  await runTests({ processes: files.map(oneFile), jobs: 2, timeoutS: 1800, strict }, total);
  process.stdout.write(`\n${tallyLine(total)}\n`);
  return total.failed === 0;
}

process.exitCode = (await main(process.argv.slice(2))) ? 0 : 1;
