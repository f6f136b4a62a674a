/**
 * Seconds in CI, always with the same connections. For minutes, and with another seed:
 *
 *     TORTURE_SECONDS=300 TORTURE_SEED=7 KPNG_TEST_ENGINE=linux npx tap -t 0 test/proxysocket/tcp/torture.test.ts
 */
import t, { type Test } from 'tap';
import { SO_SNDBUF, SOL_SOCKET } from '../../../src/proxysocket/linux/sys/abi.ts';
import { Sys } from '../../../src/proxysocket/linux/sys/sys.ts';
import { ENGINE } from '../../support/engine-under-test.ts';
import { openDescriptors, settledDescriptors } from '../../support/sockets.ts';
import { request } from '../../support/tcp-peers.ts';
import { TcpRig } from '../../support/tcp-rig.ts';
import { Torture } from '../../support/torture.ts';
import { until } from '../../support/until.ts';

const SECONDS = Number(process.env['TORTURE_SECONDS'] ?? 3);
const SEED = Number(process.env['TORTURE_SEED'] ?? 1);
const AT_ONCE = 24;

type Open = (this: Sys, argument: number) => number;

/**
 * Gives every TCP socket of the `linux` engine in this thread the smallest send buffer that the kernel
 * has, so that hardly any write is taken in full. (With the smallest receive buffer TCP would wait for
 * its timers all the time.) Until the test ends.
 */
function withSmallBuffers(t: Test): void {
  const { prototype } = Sys;
  const before = Object.getOwnPropertyDescriptors(prototype);
  const cover = (name: 'stream' | 'accept'): void => {
    const open = before[name].value as unknown as Open;
    const value: Open = function (argument) {
      const fd = open.call(this, argument);
      if (fd >= 0) this.setOption(fd, SOL_SOCKET, SO_SNDBUF, 1);
      return fd;
    };
    Object.defineProperty(prototype, name, { ...before[name], value });
  };
  cover('stream');
  cover('accept');
  t.teardown(() => Object.defineProperties(prototype, before));
}

async function torment(t: Test, seed: number): Promise<void> {
  const rig = new TcpRig(t, { limits: { bulkBufferBudget: 4 << 20 } });
  const torture = new Torture(seed);
  const endpoint = await torture.endpoint(t);
  const port = await rig.serve([endpoint.endpoint]);
  await request(t, port, 'no').catch(() => 'as it should');
  await until(() => rig.counters.active === 0 && endpoint.open === 0);
  const before = await settledDescriptors();

  const end = performance.now() + SECONDS * 1000;
  const play = async (): Promise<void> => {
    // On a loaded machine, longer: until there were enough.
    while (performance.now() < end || torture.connections <= AT_ONCE) await torture.client(port);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, play));
  await torture.over();

  t.same(torture.mistakes, []);
  t.comment(`${torture.connections} connections, ${(torture.bytes / 1e6).toFixed(0)} MB`);
  await until(() => rig.counters.active === 0 && openDescriptors() <= before);
}

t.test(`badly behaved connections keep every byte in order, seed ${SEED}`, async (t) =>
  torment(t, SEED),
);

// Only there can the buffers be chosen.
if (ENGINE !== 'node') {
  t.test(`the same if almost every write is partial, seed ${SEED}`, async (t) => {
    withSmallBuffers(t);
    await torment(t, SEED);
  });
}
