/** The executables, in a package of their own: which program they start, and with what. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';

const root = join(import.meta.dirname, '..', '..');

interface Manifest {
  readonly bin: Readonly<Record<string, string>>;
  readonly engines: { readonly node: string };
  readonly files: readonly string[];
}
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Manifest;

/** A package with the real launchers and programs that only say where they are. */
function packageWith(...programs: ('src/cli/program.ts' | 'dist/cli/program.js')[]): string {
  const directory = mkdtempSync(join(tmpdir(), 'kpng-bin-'));
  t.teardown(() => rmSync(directory, { recursive: true }));
  cpSync(join(root, 'bin'), join(directory, 'bin'), { recursive: true });
  writeFileSync(join(directory, 'package.json'), '{"type":"module"}');
  for (const program of programs) {
    mkdirSync(join(directory, program, '..'), { recursive: true });
    writeFileSync(
      join(directory, program),
      `export async function main(argv) {
         process.stdout.write(${JSON.stringify(program)} + ' ' + JSON.stringify(argv));
         return 7;
       }`,
    );
  }
  return directory;
}

async function start(file: string, args: readonly string[], nodeArgs: readonly string[] = []) {
  const child = spawn(process.execPath, [...nodeArgs, file, ...args]);
  let [stdout, stderr] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  const [code] = (await once(child, 'close')) as [number];
  return { code, stdout, stderr };
}

t.test(
  'each executable of package.json is there and starts the program with its words',
  async (t) => {
    const directory = packageWith('src/cli/program.ts');
    const words: Record<string, string[]> = {
      kpng: [],
      'kpng-userspace': [],
      'kpng-callout': ['local', 'to-callout'],
      'kpng-json': ['local', 'to-json'],
      winuserspace: ['local', 'to-winuserspace'],
    };
    t.same(Object.keys(manifest.bin).sort(), Object.keys(words).sort());
    for (const [name, path] of Object.entries(manifest.bin)) {
      t.match(readFileSync(join(root, path), 'utf8'), /^#!\/usr\/bin\/env node\n/, name);
      const { code, stdout } = await start(join(directory, path), ['-v=4', 'x']);
      t.equal(
        stdout,
        `src/cli/program.ts ${JSON.stringify([...(words[name] ?? []), '-v=4', 'x'])}`,
      );
      t.equal(code, 7, 'and ends with its exit code');
    }
  },
);

t.test(
  'a checkout runs its source, whatever was built; the package runs what was built',
  async (t) => {
    const checkout = packageWith('src/cli/program.ts', 'dist/cli/program.js');
    const { stdout } = await start(join(checkout, 'bin', 'kpng.js'), []);
    t.equal(stdout, 'src/cli/program.ts []');
    const installed = packageWith('dist/cli/program.js');
    t.match(await start(join(installed, 'bin', 'kpng.js'), []), {
      stdout: 'dist/cli/program.js []',
    });
    t.notOk(
      manifest.files.some((file) => /^(?:\.\/)?src/.test(file)),
      'the package has no source',
    );
  },
);

t.test('a Node that is too old is told so in one line', async (t) => {
  const directory = packageWith('src/cli/program.ts');
  const oldest = /\d+\.\d+/.exec(manifest.engines.node)?.[0] ?? '';
  t.equal(oldest, '22.19', 'as in bin/start.js');
  for (const [version, runs] of [
    ['18.20.0', false],
    ['22.18.3', false],
    ['22.19.0', true],
    ['24.0.0', true],
  ] as const) {
    const pretend = `Object.defineProperty(process, 'versions', { value: { node: '${version}' } })`;
    const { code, stdout, stderr } = await start(
      join(directory, 'bin', 'kpng.js'),
      [],
      [`--import=data:text/javascript,${encodeURIComponent(pretend)}`],
    );
    t.equal(code, runs ? 7 : 2, version);
    t.equal(stdout !== '', runs, version);
    if (!runs)
      t.equal(stderr, `kpng-userspace needs Node ${oldest} or newer, and this is ${version}\n`);
  }
});

t.test('so is a program that imports the library', async (t) => {
  const pretend = `Object.defineProperty(process, 'versions', { value: { node: '22.18.3' } })`;
  const library = pathToFileURL(join(root, 'src/index.ts')).href;
  const program = `import(${JSON.stringify(library)}).catch(({ code, message }) => {
    process.stdout.write(code + ': ' + message);
  })`;
  const flags = [
    `--import=data:text/javascript,${encodeURIComponent(pretend)}`,
    `--input-type=module`,
    '-e',
  ];
  const { stdout } = await start(program, [], flags);
  t.equal(
    stdout,
    'KPNG_NODE_TOO_OLD: kpng-userspace needs Node 22.19 or newer, and this is 22.18.3',
  );
});
