import { constants } from 'node:os';
import type { Test } from 'tap';
import type { EndpointSpec } from '../../../src/proxysocket/spec.ts';
import { ProcessDescriptors } from '../../../src/proxysocket/core/descriptors.ts';
import { limitChanged, connectFailed } from '../../../src/proxysocket/events.ts';
import { RelayMemory } from '../../../src/proxysocket/linux/tcp/memory.ts';
import type { Pinned } from '../../../src/proxysocket/linux/sys/memory.ts';
import type { Pipe, Sys } from '../../../src/proxysocket/linux/sys/sys.ts';
import { linuxTest, newSys } from '../../support/linux-sys.ts';
import { collect, openDescriptors, kernelPort } from '../../support/sockets.ts';
import type { SocketAddress } from '../../../src/proxysocket/linux/sys/abi.ts';
import { inlineEngine } from '../../support/engine-under-test.ts';
import { endpointAt, namedServer, request } from '../../support/tcp-peers.ts';
import { almostOne, portOf, tcpSpec } from '../../support/tcp-rig.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const PLENTY = new ProcessDescriptors({ limit: 20_000, reserve: 0 });

function relayMemory(budget: number, { sys = newSys(), descriptors = PLENTY } = {}) {
  const memory = new RelayMemory(sys, budget, descriptors);
  const take = (): Pipe => {
    const pipe = memory.takePipe();
    if (pipe === undefined) throw new Error('no pipe');
    return pipe;
  };
  return { memory, sys, descriptors, take };
}

linuxTest('of large rests the buffers count, and all buffers are used again', (t) => {
  const { memory } = relayMemory(MIB + 256 * KIB);
  const small = memory.keep(memory.current, 4, 8);
  t.equal((small.in as Pinned).length, 4 * KIB, 'as little as does');
  t.equal(memory.used, 0, 'every relay may keep so much');
  const large = memory.keep(memory.current, 4, 900 * KIB);
  t.equal(memory.used, MIB);
  memory.release(large);
  memory.release(small);
  t.equal(memory.used, 0);
  t.equal(memory.keep(memory.current, 0, 1).in, small.in);
});

linuxTest('pipes are for bulk flows, within the budget, and closed with the last of them', (t) => {
  const before = openDescriptors();
  const { memory, take } = relayMemory(2 * MIB);
  t.equal(memory.takePipe(), undefined);
  memory.noteBulk(true);
  memory.noteBulk(true);
  const empty = take();
  memory.givePipe(empty);
  t.equal(memory.takePipe(), empty, 'an empty one serves any');
  const [one, other] = [memory.keep(empty, 0, 1), memory.keep(take(), 0, 2)];
  t.equal(memory.used, 2 * MIB);
  t.equal(memory.takePipe(), undefined, 'the budget is used up');
  one.left = 0;
  memory.release(one);
  memory.release(other);
  t.equal(memory.used, 0);
  t.equal(openDescriptors(), before + 2, 'one that is not empty is of no use to anyone else');
  t.equal(memory.takePipe(), empty);
  memory.noteBulk(false);
  memory.noteBulk(false);
  t.equal(openDescriptors(), before + 2, 'it is in use');
  memory.givePipe(empty);
  t.equal(openDescriptors(), before);
});

linuxTest('pipes count as descriptors, and never use the last ones', (t) => {
  const changes = collect(t, limitChanged);
  const descriptors = new ProcessDescriptors({ limit: 40, reserve: 0 });
  const { memory, sys, take } = relayMemory(64 * MIB, { descriptors });
  memory.noteBulk(true);
  const pipes = [take(), take()];
  t.equal(memory.takePipe(), undefined, 'an eighth is for pipes');
  for (const pipe of pipes) memory.givePipe(pipe);
  t.equal(descriptors.used, 4, 'they wait for the next one');
  t.ok(descriptors.acquire(36), 'clients may have the others');
  memory.noteBulk(false);
  t.equal(descriptors.used, 36);
  t.ok(descriptors.acquire(3));
  memory.noteBulk(true);
  t.equal(memory.takePipe(), undefined, 'one is not enough');
  descriptors.release(39);

  // The system has no more.
  let asked = 0;
  const open = sys.openPipe.bind(sys);
  sys.openPipe = () => {
    asked += 1;
    return undefined;
  };
  for (let count = 0; count < 2; count += 1) t.equal(memory.takePipe(), undefined);
  t.equal(asked, 1, 'it is not asked repeatedly');
  t.equal(descriptors.used, 0);
  memory.noteBulk(false);
  sys.openPipe = open;
  memory.noteBulk(true);
  memory.givePipe(take());
  memory.noteBulk(false);
  t.same(changes, [], 'copying is no limit that anyone has to know of');
});

/** An engine in this thread, with one service port. */
async function serve(t: Test, sys: Sys, endpoints: readonly EndpointSpec[]) {
  const engine = inlineEngine(t, { random: almostOne }, sys);
  await engine.apply([{ kind: 'set', spec: tcpSpec(endpoints) }]);
  return { engine, port: portOf(engine) };
}

linuxTest('a connection to itself is a refused one', async (t) => {
  const sys = newSys();
  const gone = endpointAt(await kernelPort());
  const good = await namedServer(t, 'good');
  // As the kernel does by chance: our side gets the port that it connects to.
  const connect = sys.connect.bind(sys);
  sys.connect = (fd: number, to: SocketAddress) => {
    if (to.port === gone.port) sys.bind(fd, gone);
    return connect(fd, to);
  };
  const failed = collect(t, connectFailed);
  const { engine, port } = await serve(t, sys, [gone, good.endpoint]);
  t.equal(await request(t, port), 'good');
  t.match(failed, [{ cause: 'refused', error: /itself/ }]);
  t.match(engine.snapshot(), [{ counters: { retries: 1, bytesOut: 4 } }]);
});

linuxTest('a client for whom there is no descriptor waits, and is counted once', async (t) => {
  const sys = newSys();
  const accept = sys.accept.bind(sys);
  const outcomes: number[] = [];
  sys.accept = (fd) => outcomes.shift() ?? accept(fd);
  const { engine, port } = await serve(t, sys, [(await namedServer(t, 'good')).endpoint]);
  outcomes.push(-constants.errno.EMFILE, -constants.errno.EMFILE);
  t.equal(await request(t, port), 'good', 'after a pause');
  t.same(outcomes, []);
  t.match(engine.snapshot(), [{ counters: { rejectedLimit: 1, connections: 1 } }]);
});
