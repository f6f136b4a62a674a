import { NAMES } from '../../tools/sea/names.ts';
import { type Cli, runHere, startCli, stateFile } from '../support/cli.ts';
import { startKpngServer } from '../support/kpng-server.ts';
import { reset, service, setService, sync } from '../support/messages.ts';
import { shortDir } from '../support/short-dir.ts';
import type { Teardown } from '../support/sockets.ts';
import { echoServer, tcpClient } from '../support/tcp-peers.ts';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import type { Test } from 'tap';

t.test(
  'a wrong command line: 2, and one clear line; none at all: 2, and the whole help',
  async (t) => {
    const { code, stdout, stderr } = await runHere('local', 'to-json', '--api', 'nonsense');
    t.equal(code, 2);
    t.equal(stdout, '');
    t.equal(
      stderr,
      'kpng-userspace: --api "nonsense": the port is missing: expected host:port (KPNG_USAGE)\n' +
        'To learn more: kpng-userspace help local to-json\n',
    );
    const none = await runHere();
    t.match(none, { code: 2, stdout: '', stderr: /^kpng-userspace: a userspace.*\nUsage:\n/s });
    t.match(none.stderr, /\n\nkpng-userspace: no source was named \(KPNG_USAGE\)\n$/);
  },
);

/** Follows a server that has sent a first state, without having been asked for a second. */
async function follow(t: Test, flags: string[], labels: Record<string, string> = {}) {
  const server = await startKpngServer();
  t.teardown(() => server.stop());
  const cli = startCli(t, ['local', `--api=127.0.0.1:${server.port}`, 'to-json', ...flags]);
  const stream = await server.answer(reset, setService(service('demo/a', { labels })), sync);
  return { cli, stream };
}

t.test('a reader that goes away ends to-json with 0', async (t) => {
  const { cli, stream } = await follow(t, ['-v=1', '-logtostderr', '--vmodule=a=1']);
  await stream.request();
  cli.child.stdout?.destroy();
  stream.send(setService(service('demo/b')), sync);
  t.equal((await cli.exited).code, 0);
  t.ok(cli.log.some(({ msg }) => msg === 'Standard output closed by its reader; stopping'));
  const ignored = {
    msg: 'Flags of kube-proxy or klog have no effect',
    flags: '--logtostderr --vmodule',
  };
  t.match(cli.log[0], ignored);
  t.same(cli.otherLines, [], 'standard error has JSON only');
});

t.test('a stuck reader cannot keep the program alive beyond the drain timeout', async (t) => {
  const flags = ['--drain-timeout=100ms', '-v=2'];
  const { cli } = await follow(t, flags, { filler: 'x'.repeat(3_000_000) });
  cli.child.stdout?.pause();
  await cli.line('Received a complete state', { services: 1 });
  // The pipe is full for good: the next request never comes.
  cli.kill('SIGTERM');
  await cli.line('Drain timeout reached; closing the remaining connections', {
    drainTimeout: '100ms',
  });
  cli.child.stdout?.resume();
  t.equal((await cli.exited).code, 0);
});

/** The executables, in a package of their own: which program they start, and with what. */

const root = join(import.meta.dirname, '..', '..');

interface Manifest {
  readonly bin: Readonly<Record<string, string>>;
  readonly engines: { readonly node: string };
  readonly files: readonly string[];
}
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Manifest;

/** A package with the real launchers and programs that only say where they are. */
function packageWith(...programs: ('src/cli/program.ts' | 'dist/cli/program.js')[]): string {
  const directory = shortDir(t);
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

function start(file: string, args: readonly string[], nodeArgs: readonly string[] = []) {
  return new Promise<{ code: unknown; stdout: string; stderr: string }>((resolve) => {
    execFile(process.execPath, [...nodeArgs, file, ...args], (error, stdout, stderr) =>
      resolve({ code: error?.code ?? 0, stdout, stderr }),
    );
  });
}

t.test('each executable starts the program with the same words as the single file', async (t) => {
  // A checkout runs its source, even if it was built.
  const directory = packageWith('src/cli/program.ts', 'dist/cli/program.js');
  t.same(Object.keys(manifest.bin).sort(), Object.keys(NAMES).sort());
  for (const [name, path] of Object.entries(manifest.bin)) {
    t.match(readFileSync(join(root, path), 'utf8'), /^#!\/usr\/bin\/env node\n/, name);
    const { code, stdout } = await start(join(directory, path), ['-v=4', 'x']);
    t.equal(stdout, `src/cli/program.ts ${JSON.stringify([...(NAMES[name] ?? []), '-v=4', 'x'])}`);
    t.equal(code, 7, 'and ends with its exit code');
  }
  const isSource = (file: string): boolean => /^(?:\.\/)?src/.test(file);
  t.notOk(manifest.files.some(isSource), 'the package runs what was built, not the source');
  const built = packageWith('dist/cli/program.js');
  t.match(await start(join(built, 'bin', 'kpng.js'), []), { stdout: 'dist/cli/program.js []' });
});

/** A flag of Node that makes it say it is this version. */
function asNode(version: string): string {
  const pretend = `Object.defineProperty(process, 'versions', { value: { node: '${version}' } })`;
  return `--import=data:text/javascript,${encodeURIComponent(pretend)}`;
}

t.test('a Node that is too old is reported so in one line', async (t) => {
  const directory = packageWith('src/cli/program.ts');
  const oldest = /\d+\.\d+/.exec(manifest.engines.node)?.[0] ?? '';
  t.equal(oldest, '22.19', 'as in bin/start.js');
  for (const [version, runs] of [
    ['22.18.3', false],
    ['22.19.0', true],
  ] as const) {
    const { code, stdout, stderr } = await start(
      join(directory, 'bin', 'kpng.js'),
      [],
      [asNode(version)],
    );
    t.equal(code, runs ? 7 : 2, version);
    t.equal(stdout !== '', runs, version);
    if (!runs)
      t.equal(stderr, `kpng-userspace needs Node ${oldest} or newer, and this is ${version}\n`);
  }
});

t.test('a program that imports the library is also safe', async (t) => {
  const library = pathToFileURL(join(root, 'src/index.ts')).href;
  const program = `import(${JSON.stringify(library)}).catch(({ code, message }) => {
    process.stdout.write(code + ': ' + message);
  })`;
  const { stdout } = await start(program, [], [asNode('22.18.3'), '--input-type=module', '-e']);
  t.equal(
    stdout,
    'KPNG_NODE_TOO_OLD: kpng-userspace needs Node 22.19 or newer, and this is 22.18.3',
  );
});

/** USR1, which makes Node open its debugger to every user of the machine. */

const ROOT = join(import.meta.dirname, '../..');
/** What Node says when it opens it, with the port. */
const OPENED = /Debugger listening on ws:\/\/127\.0\.0\.1:(\d+)/g;

/** Node with a debugger on a free port, and a signal that comes before the first line of the script. */
const EARLY_SIGNAL = `import { url } from 'node:inspector';
import { isMainThread } from 'node:worker_threads';
if (isMainThread) {
  process.kill(process.pid, 'SIGUSR1');
  for (const end = Date.now() + 20_000; url() === undefined && Date.now() < end; );
}`;
const EARLY = [
  '--inspect-port=0',
  `--import=data:text/javascript,${encodeURIComponent(EARLY_SIGNAL)}`,
];

/** What a debugger reports about itself; another process may have the port of one that was closed. */
async function debuggerAt(port = 0): Promise<string> {
  const signal = AbortSignal.timeout(10_000);
  const answer = fetch(`http://127.0.0.1:${port}/json/version`, { signal });
  return answer.then(
    (response) => response.text(),
    () => '',
  );
}

/** Starts a program with options of Node. */
function startWith(t: Teardown, options: readonly string[], ...command: [string[], string?]): Cli {
  const before = process.env['NODE_OPTIONS'];
  process.env['NODE_OPTIONS'] = [before ?? '', ...options].join(' ');
  try {
    return startCli(t, ...command);
  } finally {
    if (before === undefined) delete process.env['NODE_OPTIONS'];
    else process.env['NODE_OPTIONS'] = before;
  }
}

/** A state file with one service port on loopback whose endpoint sends back what it gets. */
async function echoState(t: Teardown): Promise<{ input: string; port: number }> {
  const { port } = await echoServer(t);
  const { path, ports } = await stateFile(t, [{ name: 'echo', endpoints: [port] }]);
  return { input: path, port: ports['echo'] ?? 0 };
}

const WAYS = [
  { name: 'an executable of the package', script: 'bin/kpng-userspace.js', words: [] },
  { name: 'npm start', script: 'tools/node.cjs', words: [join(ROOT, 'bin/kpng-userspace.js')] },
];

const onlyLinux = { skip: process.platform === 'win32' && 'only on linux' };

for (const { name, script, words } of WAYS) {
  t.test(`USR1 opens no debugger and does not affect traffic: ${name}`, onlyLinux, async (t) => {
    const { input, port } = await echoState(t);
    const args =
      `file --input ${input} to-local to-userspace --portal address ` +
      '--metrics-bind-address 0 --healthz-bind-address 0';
    const cli = startWith(t, EARLY, [...words, ...args.split(' ')], join(ROOT, script));
    await cli.line('The first complete state is in place');
    const client = await tcpClient(t, port);
    for (let round = 0; round < 20; round += 1) {
      cli.kill('SIGUSR1');
      client.write(`round ${round}`);
      const [answer] = (await once(client, 'data')) as [Buffer];
      t.equal(answer.toString(), `round ${round}`);
    }
    const opened = [...cli.otherLines.join('\n').matchAll(OPENED)].map(([, at]) => Number(at));
    t.ok(opened[0], 'open before the script ran');
    t.notMatch(await debuggerAt(opened.at(-1)), 'Protocol-Version', 'and it was closed');
    cli.kill('SIGTERM');
    client.destroy();
    t.equal((await cli.exited).code, 0, 'and it ends as asked');
  });
}

t.test('a requested debugger stays', async (t) => {
  const { input } = await echoState(t);
  const cli = startWith(t, ['--inspect=127.0.0.1:0'], ['file', '--input', input, 'to-json']);
  await cli.until(() => cli.stdout !== '', 'the state');
  const [port] = [...cli.otherLines.join('\n').matchAll(OPENED)].map(([, at]) => Number(at));
  t.match(await debuggerAt(port), 'Protocol-Version');
});
