/** USR1, which makes Node open its debugger to every user of the machine. */
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { freePort, type Teardown } from '../support/sockets.ts';
import { startCli, type Cli } from '../support/cli.ts';
import { echoServer } from '../support/tcp-peers.ts';

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
async function echoState(t: Teardown, folder: string): Promise<{ input: string; port: number }> {
  const { port: targetport } = await echoServer(t);
  const port = await freePort();
  const input = join(folder, 'state.yaml');
  const state = {
    services: [
      {
        service: {
          namespace: 'default',
          name: 'echo',
          type: 'ClusterIP',
          ips: { clusterips: { v4: ['127.0.0.1'] } },
          ports: [{ name: 'echo', protocol: 1, port, targetport }],
        },
        endpoints: [{ endpoint: { ips: { v4: ['127.0.0.1'] } }, conditions: { ready: true } }],
      },
    ],
  };
  writeFileSync(input, JSON.stringify(state));
  return { input, port };
}

async function connected(port: number): Promise<void> {
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect').finally(() => socket.destroy());
}

const WAYS = [
  { name: 'an executable of the package', script: 'bin/kpng-userspace.js', words: [] },
  { name: 'npm start', script: 'tools/node.cjs', words: [join(ROOT, 'src/cli/main.ts')] },
  { name: 'the source', script: 'src/cli/main.ts', words: [] },
];

for (const { name, script, words } of WAYS) {
  t.test(
    `USR1 opens no debugger and harms no traffic: ${name}`,
    { skip: process.platform === 'win32' && 'only on linux' },
    async (t) => {
      const { input, port } = await echoState(t, t.testdir());
      const args =
        `file --input ${input} to-local to-userspace --portal address ` +
        '--metrics-bind-address 0 --healthz-bind-address 0';
      const cli = startWith(t, EARLY, [...words, ...args.split(' ')], join(ROOT, script));
      await cli.line('The first complete state is in place');
      const client = connect(port, '127.0.0.1');
      t.teardown(() => client.destroy());
      for (let round = 0; round < 20; round += 1) {
        cli.kill('SIGUSR1');
        client.write(`round ${round}`);
        const [answer] = (await once(client, 'data')) as [Buffer];
        t.equal(answer.toString(), `round ${round}`);
      }
      const opened = [...cli.otherLines.join('\n').matchAll(OPENED)].map(([, at]) => Number(at));
      t.ok(opened[0], 'open before the script ran');
      await t.rejects(connected(opened.at(-1) ?? 0), { code: 'ECONNREFUSED' }, 'and it was closed');
      cli.kill('SIGTERM');
      client.destroy();
      t.equal((await cli.exited).code, 0, 'and it ends as asked');
    },
  );
}

t.test('a debugger that was asked for stays', async (t) => {
  const { input } = await echoState(t, t.testdir());
  const cli = startWith(t, ['--inspect=127.0.0.1:0'], ['file', '--input', input, 'to-json']);
  await cli.until(() => cli.stdout !== '', 'the state');
  const [port] = [...cli.otherLines.join('\n').matchAll(OPENED)].map(([, at]) => Number(at));
  await connected(port ?? 0);
});
