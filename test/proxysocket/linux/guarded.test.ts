/** Which ends of a process with the `linux` engine count against the engine. */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { Test } from 'tap';
import { CrashBreaker } from '../../../src/proxysocket/linux/breaker.ts';
import { linuxTest } from '../../support/linux-sys.ts';
import { echoServer, tcpClient } from '../../support/tcp-peers.ts';

const CHILD = new URL('../../support/guarded-child.ts', import.meta.url);
/** Idle connections, opened so many at once. */
const CONNECTIONS = 1000;
const AT_ONCE = 100;

interface Rig {
  readonly child: ChildProcess;
  readonly breaker: CrashBreaker;
  /** Sends TERM, and resolves when the process has understood. */
  readonly term: () => Promise<void>;
  /** Sends a signal, and resolves with how the process ended. */
  readonly end: (signal: NodeJS.Signals) => Promise<unknown[]>;
}

async function set(t: Test, connections = 0): Promise<Rig> {
  const path = join(t.testdir(), 'runs');
  const server = await echoServer(t);
  const child = fork(CHILD, [path, String(server.port)]);
  t.teardown(() => child.kill('SIGKILL'));
  const [port] = (await once(child, 'message')) as [number];
  for (let opened = 0; opened < connections; opened += AT_ONCE) {
    await Promise.all(Array.from({ length: AT_ONCE }, () => tcpClient(t, port)));
  }
  return {
    child,
    breaker: new CrashBreaker({ path }),
    async term() {
      child.kill('SIGTERM');
      t.same((await once(child, 'message'))[0], 'stopping');
    },
    async end(signal) {
      child.kill(signal);
      return once(child, 'exit');
    },
  };
}

linuxTest(
  'one that is killed while idle connections keep it from ending is no death',
  async (t) => {
    const { term, end, breaker } = await set(t, CONNECTIONS);
    await term();
    t.same(await end('SIGKILL'), [null, 'SIGKILL']);
    t.equal(breaker.deaths(), 0);
  },
);

linuxTest('one that a second signal ends at once is no death', async (t) => {
  const { term, end, breaker } = await set(t);
  await term();
  t.same(await end('SIGTERM'), [1, null]);
  t.equal(breaker.deaths(), 0);
});

linuxTest('one that ends because of an error that nobody caught is no death', async (t) => {
  const { child, breaker } = await set(t);
  child.send('throw');
  t.same(await once(child, 'exit'), [1, null]);
  t.equal(breaker.deaths(), 0);
});

for (const signal of ['SIGSEGV', 'SIGABRT', 'SIGKILL'] as const) {
  linuxTest(`one that ${signal} ends without a word is a death`, async (t) => {
    const { end, breaker } = await set(t);
    t.same(await end(signal), [null, signal]);
    t.equal(breaker.deaths(), 1);
  });
}
