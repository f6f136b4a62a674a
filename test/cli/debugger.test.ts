/** USR1, which makes Node open its debugger to every user of the machine. */
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { freePort, type Teardown } from '../support/sockets.ts';
import { startCli } from '../support/cli.ts';
import { echoServer } from '../support/tcp-peers.ts';

const ROOT = join(import.meta.dirname, '../..');
/** What Node says when it opens it, or when another program has its port. */
const OPENED = /Debugger listening|Starting inspector/;

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
      const cli = startCli(t, [...words, ...args.split(' ')], join(ROOT, script));
      await cli.line('The first complete state is in place');
      const client = connect(port, '127.0.0.1');
      t.teardown(() => client.destroy());
      for (let round = 0; round < 20; round += 1) {
        cli.kill('SIGUSR1');
        client.write(`round ${round}`);
        const [answer] = (await once(client, 'data')) as [Buffer];
        t.equal(answer.toString(), `round ${round}`);
      }
      cli.kill('SIGTERM');
      client.destroy();
      const { code, stderr } = await cli.exited;
      t.equal(code, 0, 'and it ends as asked');
      t.notMatch(stderr, OPENED);
    },
  );
}
