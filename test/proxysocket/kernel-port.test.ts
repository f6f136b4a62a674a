import t from 'tap';
import { kernelPortRange, listenOnAnyPort } from '../../src/proxysocket/core/kernel-port.ts';
import type { Listener } from '../../src/proxysocket/core/service-port.ts';

const range = { first: 40_000, last: 40_009 };

/** A host where some ports are taken; `tried` tells what was asked for. */
function host(taken: readonly number[]) {
  const tried: number[] = [];
  return {
    tried,
    open: async (port: number): Promise<Listener> => {
      tried.push(port);
      if (taken.includes(port)) throw Object.assign(new Error('taken'), { code: 'EADDRINUSE' });
      return { boundPort: port } as Listener;
    },
  };
}

/** Numbers to be drawn, one after another. */
function draws(...numbers: number[]): () => number {
  return () => numbers.shift() ?? 0;
}

t.test('takes a port of the range by chance', async (t) => {
  const { open, tried } = host([]);
  await listenOnAnyPort(open, range, draws(0.99));
  t.same(tried, [40_009]);
});

t.test('goes on when a port is taken, and asks the kernel in the end', async (t) => {
  const some = host([40_001]);
  await listenOnAnyPort(some.open, range, draws(0.1, 0.2));
  t.same(some.tried, [40_001, 40_002]);
  const all = host(Array.from({ length: 10 }, (_, n) => 40_000 + n));
  await listenOnAnyPort(all.open, range, draws(0.1, 0.2, 0.3));
  t.same(all.tried, [40_001, 40_002, 40_003, 0]);
});

t.test('other errors are not for another port to cure', async (t) => {
  const tried: number[] = [];
  const open = async (port: number): Promise<Listener> => {
    tried.push(port);
    throw Object.assign(new Error('no'), { code: 'EADDRNOTAVAIL' });
  };
  await t.rejects(listenOnAnyPort(open, range, draws(0)), { code: 'EADDRNOTAVAIL' });
  t.same(tried, [40_000]);
});

t.test('asks the kernel at once where the range is not known', async (t) => {
  const { open, tried } = host([]);
  await listenOnAnyPort(open, undefined, draws());
  t.same(tried, [0]);
});

t.test('reads the range of the kernel where there is one', async (t) => {
  const found = kernelPortRange();
  if (process.platform !== 'linux') t.equal(found, undefined);
  else t.ok(found !== undefined && found.first >= 1 && found.last > found.first);
});
