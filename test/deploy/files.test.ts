/** What the image, the unit and the pages about them say, against what there is. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { parse } from '../../src/cli/parse.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const read = (path: string): string =>
  readFileSync(join(ROOT, path), 'utf8').replaceAll('\r\n', '\n');

/** Instructions of a Dockerfile, each on one line, without comments. */
const instructions = read('Dockerfile.linux')
  .replaceAll(/^#.*\n/gm, '')
  .replaceAll(/\\\n\s*/g, ' ')
  .split('\n')
  .filter((line) => line !== '');

t.test('base images are pinned by their digests', async (t) => {
  const images = instructions.filter((line) => /^ARG \w+_IMAGE=/.test(line));
  t.equal(images.length, 2);
  for (const line of images) t.match(line, /@sha256:[0-9a-f]{64}$/);
  const stages = instructions.filter((line) => line.startsWith('FROM '));
  const known = new Set(['${NODE_IMAGE}', '${DEBIAN_IMAGE}']);
  for (const line of stages) {
    const [, from = '', , name = ''] = line.split(' ');
    t.ok(known.has(from), line);
    known.add(name);
  }
  t.match(stages.at(-1), /AS full$/, 'what is built by default');
});

t.test('what is copied is there, and not kept from the builder', async (t) => {
  const allowed = read('.dockerignore')
    .split('\n')
    .filter((line) => line.startsWith('!'))
    .map((line) => line.slice(1));
  const copied = instructions
    .filter((line) => line.startsWith('COPY ') && !line.includes('--from='))
    .flatMap((line) => line.split(' ').slice(1, -1));
  t.same([...copied].sort(), [...allowed].sort());
  for (const path of allowed) t.ok(existsSync(join(ROOT, path)), path);
  t.match(read('.dockerignore'), /^\*$/m, 'nothing else');
});

t.test('the image has what the package has, but for pages', async (t) => {
  const { files } = JSON.parse(read('package.json')) as { files: string[] };
  const kept = /cp -r ([\w./ ]+) \/image\/opt\/kpng-userspace\//.exec(instructions.join('\n'))?.[1];
  const own = new Set(['package.json', 'node_modules']);
  const pages = new Set(['docs', 'CHANGELOG.md']);
  t.same(
    (kept?.split(' ') ?? []).filter((each) => !own.has(each)).sort(),
    files.filter((each) => !pages.has(each)).sort(),
  );
});

t.test('process 1 is an init, and the small image is not root', async (t) => {
  const entry = instructions.find((line) => line.startsWith('ENTRYPOINT '));
  t.same(JSON.parse(entry?.slice('ENTRYPOINT '.length) ?? ''), [
    '/usr/bin/tini',
    '--',
    '/usr/local/bin/kpng-userspace',
  ]);
  const slim = instructions.indexOf('FROM runtime AS slim');
  t.match(instructions[slim + 1], /^USER 65532:65532$/);
  for (const line of instructions.filter((each) => each.includes('apt-get install'))) {
    t.match(line, /--no-install-recommends/);
    t.match(line, /rm -rf \/var\/lib\/apt\/lists\/\*/, 'no lists are left in the layer');
  }
});

const UNIT = 'deploy/systemd/kpng-userspace@.service';

/** Settings of a unit, by name. */
const unit = new Map(
  [...read(UNIT).matchAll(/^(\w+)=(.*)$/gm)].map(([, key = '', value = '']) => [key, value]),
);

t.test('the unit starts a command line, and waits longer than it drains', async (t) => {
  const [, ...args] = (unit.get('ExecStart') ?? '').split(' ');
  const own = 'kube --kubeconfig /etc/kpng-userspace/kubeconfig to-local to-userspace'.split(' ');
  t.match(read(UNIT), `ARGS=${own.join(' ')}\n`, 'the example of the comment');
  const line = args.flatMap((arg) => (arg === '$ARGS' ? own : [arg]));
  t.match(parse(line), { kind: 'run', globals: { 'drain-timeout': 60_000 } });
  t.ok(Number(unit.get('TimeoutStopSec')) > 60);
  t.equal(unit.get('CapabilityBoundingSet'), 'CAP_NET_ADMIN CAP_NET_RAW');
  t.equal(unit.get('NoNewPrivileges'), 'yes');
  t.equal(unit.get('MemoryDenyWriteExecute'), 'no', 'Node could not start');
});

function has(program: string): boolean {
  try {
    execFileSync(program, ['--version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

if (has('systemd-analyze')) {
  t.test('systemd finds nothing wrong with it, and not much exposed', async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'kpng-unit-'));
    t.teardown(() => rmSync(folder, { recursive: true }));
    const file = join(folder, 'kpng-userspace@.service');
    // A program that there is.
    writeFileSync(file, read(UNIT).replace('/usr/bin/kpng-userspace', process.execPath));
    execFileSync('systemd-analyze', ['verify', '--man=no', file], { stdio: 'pipe' });
    // 4.0 is the highest exposure that passes, of 10.
    const args = ['security', '--offline=true', '--threshold=40', file];
    t.match(execFileSync('systemd-analyze', args, { encoding: 'utf8' }), /exposure level/);
  });
}

t.test('scripts of deploy/ can be read by their shell', async (t) => {
  const folder = join(ROOT, 'deploy', 'image');
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.sh'))) {
    t.match(read(`deploy/image/${file}`), /^#!\/usr\/bin\/env bash\n[^]*set -euo pipefail/, file);
    if (has('bash')) execFileSync('bash', ['-n', join(folder, file)]);
  }
});
