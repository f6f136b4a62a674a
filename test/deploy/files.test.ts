/** What the image, the unit and the pages about them say, against what there is. */
import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import t from 'tap';
import { parse } from '../../src/cli/parse.ts';
import { projectAddress } from '../../tools/release/package.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const read = (path: string): string =>
  readFileSync(join(ROOT, path), 'utf8').replaceAll('\r\n', '\n');

/** Instructions of a Dockerfile, each on one line, without comments. */
function instructionsOf(name: string): string[] {
  return read(name)
    .replaceAll(/^#.*\n/gm, '')
    .replaceAll(/\\\n\s*/g, ' ')
    .split('\n')
    .filter((line) => line !== '');
}

/** The `FROM` lines whose base is neither an earlier stage nor an image with a digest, be it by default of an argument. */
function unpinned(lines: readonly string[]): string[] {
  const defaults = new Map(
    lines
      .map((line) => /^ARG (\w+)=(\S+)$/.exec(line))
      .map((found) => [found?.[1], found?.[2] ?? '']),
  );
  const stages = new Set<string>();
  return lines.filter((line) => {
    const [, from = '', stage] = /^FROM (\S+)(?: AS (\S+))?$/.exec(line) ?? [];
    const image = from.replaceAll(/\$\{(\w+)\}/g, (_, name: string) => defaults.get(name) ?? '');
    const pinned = stages.has(image) || /^[^@]+@sha256:[0-9a-f]{64}$/.test(image);
    if (stage !== undefined) stages.add(stage);
    return line.startsWith('FROM ') && !pinned;
  });
}

t.test('base images are pinned by their digests, on Windows, too', async (t) => {
  for (const name of ['Dockerfile.linux', 'Dockerfile.windows']) {
    t.same(unpinned(instructionsOf(name)), [], name);
  }
  const last = instructionsOf('Dockerfile.linux').findLast((line) => line.startsWith('FROM '));
  t.match(last, /AS full$/, 'what is built by default');
});

t.test('package.json gets the address of the checkout, without its secrets', async (t) => {
  const home = 'https://git.example.org/net/proxy#readme';
  for (const remote of [
    'https://user:secret@git.example.org/net/proxy.git',
    'ssh://git@git.example.org:2222/net/proxy',
    'https://git.example.org/net/proxy/',
  ]) {
    t.equal(projectAddress(remote)?.homepage, home, remote);
  }
  for (const remote of ['', '/srv/git/proxy.git', '../proxy', 'file:///srv/proxy']) {
    t.equal(projectAddress(remote), undefined, remote);
  }
});

t.test('manifests and state files that packaged pages refer to are in the package', async (t) => {
  const { files } = JSON.parse(read('package.json')) as { files: string[] };
  for (const name of globSync('docs/**/*.md', { cwd: ROOT })) {
    for (const [, target = ''] of read(name).matchAll(/\]\((?!\w+:)([^)#]+)/g)) {
      const path = join(dirname(name), target).replaceAll('\\', '/');
      if (!/^(?:deploy|examples\/state-file|schema)\b/.test(path)) continue;
      const isPacked = files.some((each) => path.startsWith(each));
      t.ok(isPacked, `${name}: ${path}`);
    }
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
  t.match(parse(line), { kind: 'run', globals: { drainTimeout: 60_000 } });
  t.ok(Number(unit.get('TimeoutStopSec')) > 60);
  t.equal(unit.get('CapabilityBoundingSet'), 'CAP_NET_ADMIN CAP_NET_RAW');
  t.equal(unit.get('NoNewPrivileges'), 'yes');
  t.equal(unit.get('MemoryDenyWriteExecute'), 'no', 'Node could not start');
});
