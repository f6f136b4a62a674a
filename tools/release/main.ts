/**
 * `npm run release`: puts everything that is published into release/: the package, the software bill of
 * materials, the man page, the scripts for shells, the chart's files and the manifests, and a list of checksums.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { SCRIPTS } from '../../src/cli/completion/scripts.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const OUT = join(ROOT, 'release');

function npm(...args: readonly string[]): string {
  return execFileSync('npm', args, { cwd: ROOT, encoding: 'utf8', maxBuffer: 1 << 28 });
}

rmSync(OUT, { recursive: true, force: true });
mkdirSync(join(OUT, 'completion'), { recursive: true });
npm('run', 'man');
// What the program needs to run, not what it was made with; of the lock file, so that it is the same on every system.
npm('pack', '--silent', '--pack-destination', OUT);
for (const format of ['cyclonedx', 'spdx']) {
  const sbom = npm('sbom', '--sbom-format', format, '--omit', 'dev', '--package-lock-only');
  writeFileSync(join(OUT, `sbom.${format}.json`), sbom);
}
cpSync(join(ROOT, 'man', 'kpng-userspace.1'), join(OUT, 'kpng-userspace.1'));
for (const [shell, script] of Object.entries(SCRIPTS)) {
  writeFileSync(join(OUT, 'completion', `kpng-userspace.${shell}`), script);
}
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
