/** What `npm run release` makes of a fresh copy, and the package, installed where there is nothing else. */
import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { cpSync, globSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { programVersion } from '../../../src/cli/version.ts';
import { shortDir } from '../../support/short-dir.ts';
import { missing, run, tool } from '../support/toolbox.ts';

const exec = (file: string, args: readonly string[], cwd: string) =>
  promisify(execFile)(file, args, { cwd, maxBuffer: 1 << 26 });
const ROOT = join(import.meta.dirname, '..', '..', '..');
const VERSION = programVersion();
const TARBALL = `kpng-userspace-${VERSION}.tgz`;

/** What a fresh clone does not have. */
const MADE = new Set(['.git', '.tap', 'node_modules', 'dist', 'dist-sea', 'man', 'release']);

const folder = shortDir(t);
const checkout = join(folder, 'checkout');
cpSync(ROOT, checkout, {
  recursive: true,
  filter: (path) => relative(ROOT, path).includes('/') || !MADE.has(basename(path)),
});
symlinkSync(join(ROOT, 'node_modules'), join(checkout, 'node_modules'));
await exec('git', ['init', '--quiet'], checkout);
await exec('git', ['remote', 'add', 'origin', 'git@git.example.org:net/proxy.git'], checkout);
await exec('npm', ['run', 'release'], checkout);
const release = join(checkout, 'release');
const read = (path: string): string => readFileSync(join(release, path), 'utf8');

t.test('everything is in it, under its checksum', async (t) => {
  const sums = read('SHA256SUMS').trimEnd().split('\n');
  for (const line of sums) {
    const [sum = '', path = ''] = line.split('  ');
    const data = readFileSync(join(release, path));
    t.equal(createHash('sha256').update(data).digest('hex'), sum, path);
  }
  const files = readdirSync(release, { recursive: true, withFileTypes: true });
  t.equal(files.filter((file) => file.isFile()).length, sums.length + 1, 'and nothing besides');
  for (const name of readdirSync(join(ROOT, 'assets', 'completion'))) {
    const script = readFileSync(join(ROOT, 'assets', 'completion', name), 'utf8');
    t.equal(read(`completion/${name}`), script);
  }
  t.match(read('kpng-userspace.1'), `"kpng\\-userspace ${VERSION}"`);
  for (const path of ['helm/kpng-userspace/Chart.yaml', 'systemd/kpng-userspace@.service']) {
    t.equal(read(`deploy/${path}`), readFileSync(join(ROOT, 'deploy', path), 'utf8'));
  }
});

interface CycloneDx {
  readonly Spec: { readonly Version: Readonly<Record<string, string>> };
  readonly Validation: {
    JsonStrictValidator: new (version: string) => { validate(text: string): Promise<unknown> };
  };
}
interface Bom {
  readonly specVersion: string;
  components: { name: string; version: string; purl: string; type: string }[];
}

const skip = missing('cyclonedx-library');

t.test('CycloneDX: as its schema says, and complete', { skip }, async (t) => {
  const library = tool('cyclonedx-library');
  const { Validation } = createRequire(join(library, 'x.js'))(library) as CycloneDx;
  const text = read('sbom.cyclonedx.json');
  const bom = JSON.parse(text) as Bom;
  const validator = new Validation.JsonStrictValidator(bom.specVersion);
  t.equal(await validator.validate(text), null);
  const { dependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    dependencies: Record<string, string>;
  };
  const listed = new Set(bom.components.map(({ purl }) => decodeURIComponent(purl)));
  for (const [name, version] of Object.entries(dependencies)) {
    t.ok(listed.has(`pkg:npm/${name}@${version}`), name);
  }
  for (const purl of listed) t.notMatch(purl, /^pkg:npm\/(node-|typescript|tap@)/);
});

t.test('SPDX: as the tools of its makers demand', { skip: missing('pyspdxtools') }, async (t) => {
  const { code, text } = await run('pyspdxtools', ['--infile', join(release, 'sbom.spdx.json')]);
  t.equal(code, 0, text);
});

t.test('the package, installed into an empty folder', async (t) => {
  const empty = join(folder, 'empty');
  mkdirSync(empty);
  const install = 'install --no-audit --no-fund --ignore-scripts --prefix'.split(' ');
  await exec('npm', [...install, empty, join(release, TARBALL)], empty);
  const home = join(empty, 'node_modules', 'kpng-userspace');
  const manifest = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8')) as {
    bin: Record<string, string>;
    man: string;
    [key: string]: unknown;
  };
  for (const key of ['scripts', 'devDependencies', 'optionalDependencies']) {
    t.notOk(key in manifest, `${key} are for a checkout`);
  }
  t.match(
    manifest,
    {
      keywords: ['kubernetes'],
      repository: { type: 'git', url: 'git+https://git.example.org/net/proxy.git' },
      homepage: 'https://git.example.org/net/proxy#readme',
      bugs: { url: 'https://git.example.org/net/proxy/issues' },
    },
    'the addresses of the clone',
  );
  t.same(globSync('node_modules/node-*', { cwd: empty }), [], 'and so no Node comes with it');
  t.same(globSync('**/*.{map,png}', { cwd: home }), [], 'nor what no program and no reader needs');
  const bin = join(empty, 'node_modules', '.bin');
  const names = 'kpng kpng-callout kpng-json kpng-userspace winuserspace';
  t.equal(Object.keys(manifest.bin).join(' '), names);
  const program = (name: string, ...args: string[]) => exec(join(bin, name), args, empty);
  for (const name of Object.keys(manifest.bin)) {
    t.match((await program(name, '--help')).stdout, /Usage:/, name);
  }
  t.match((await program('kpng-userspace', 'version')).stdout, VERSION);
  const { stdout } = await program('kpng-userspace', 'completion', 'bash');
  t.equal(stdout, read('completion/kpng-userspace.bash'));
  t.equal(readFileSync(join(home, manifest.man), 'utf8'), read('kpng-userspace.1'));
  for (const file of globSync('schema/*', { cwd: ROOT })) {
    const path = createRequire(join(empty, 'x.js')).resolve(`kpng-userspace/${file}`);
    t.equal(dirname(path), join(home, 'schema'));
    JSON.parse(readFileSync(path, 'utf8'));
  }
  const state = join(ROOT, 'examples', 'state-file', 'minimal.yaml');
  const args = ['file', '--input', state, 'to-local', 'to-json'];
  const printing = spawn(join(bin, 'kpng-userspace'), args, {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const [line] = (await once(printing.stdout, 'data')) as [Buffer];
  t.ok(JSON.parse(String(line).split('\n')[0] ?? ''), 'it reads a state file and prints JSON');
  printing.kill();
  await once(printing, 'close');
  const library = "import { run } from 'kpng-userspace'; process.stdout.write(typeof run);";
  const module = ['--input-type=module', '--eval', library];
  t.equal((await exec(process.execPath, module, empty)).stdout, 'function');
});
