/**
 * `npm run release`: puts everything that is published into release/: the package, the software bill of
 * materials, the man page, the scripts for shells, the chart's files and the manifests, and a list of checksums.
 * `npm publish release/kpng-userspace-VERSION.tgz` publishes the package.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stage, type PackageJson } from './package.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const OUT = join(ROOT, 'release');

function npm(...args: readonly string[]): string {
  return execFileSync('npm', args, { cwd: ROOT, encoding: 'utf8', maxBuffer: 1 << 28 });
}

/** The URL of the remote `origin`; empty: this is no clone of another repository. */
function gitRemote(): string {
  const { stdout } = spawnSync('git', ['remote', 'get-url', 'origin'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  return (stdout ?? '').trim();
}

/** SPDX 2.3 knows no fractions of seconds in the time of creation (6.9); npm writes them. */
function wholeSeconds(spdx: string): string {
  return spdx.replace(/("created": "[^"]*)\.\d+Z"/, '$1Z"');
}

rmSync(OUT, { recursive: true, force: true });
mkdirSync(join(OUT, 'completion'), { recursive: true });
npm('run', 'man');
npm('run', 'build');
const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as PackageJson;
const staged = mkdtempSync(join(tmpdir(), 'kpng-release-'));
try {
  stage(ROOT, staged, manifest, gitRemote());
  npm('pack', staged, '--silent', '--ignore-scripts', '--pack-destination', OUT);
  // The bills are those of the package as it is published, with the versions of the lock file of the checkout.
  cpSync(join(ROOT, 'package-lock.json'), join(staged, 'package-lock.json'));
  const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--silent'];
  npm('install', '--prefix', staged, '--package-lock-only', ...quiet);
  const bill = (format: string): string =>
    npm('sbom', '--prefix', staged, '--package-lock-only', '--sbom-format', format);
  writeFileSync(join(OUT, 'sbom.cyclonedx.json'), bill('cyclonedx'));
  writeFileSync(join(OUT, 'sbom.spdx.json'), wholeSeconds(bill('spdx')));
} finally {
  rmSync(staged, { recursive: true });
}
cpSync(join(ROOT, 'man', 'kpng-userspace.1'), join(OUT, 'kpng-userspace.1'));
cpSync(join(ROOT, 'assets', 'completion'), join(OUT, 'completion'), { recursive: true });
cpSync(join(ROOT, 'deploy'), join(OUT, 'deploy'), { recursive: true });

const sums = readdirSync(OUT, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map(({ parentPath, name }) => join(parentPath, name))
  .sort()
  .map((path) => {
    const sum = createHash('sha256').update(readFileSync(path)).digest('hex');
    return `${sum}  ${path.slice(OUT.length + 1).replaceAll('\\', '/')}\n`;
  });
writeFileSync(join(OUT, 'SHA256SUMS'), sums.join(''));
process.stdout.write(`release/ has ${sums.length} files\n`);
