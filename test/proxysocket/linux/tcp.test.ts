import { ProcessDescriptors } from '../../../src/proxysocket/core/descriptors.ts';
import { limitChanged, connectFailed } from '../../../src/proxysocket/events.ts';
import { RelayMemory, type KeptBytes } from '../../../src/proxysocket/linux/tcp/memory.ts';
import type { Pipe } from '../../../src/proxysocket/linux/sys/pipes.ts';
import { linuxTest, newSys } from '../../support/linux-sys.ts';
import { collect, openDescriptors, freePort } from '../../support/sockets.ts';
import { createDataPlane } from '../../../src/proxysocket/linux/engine.ts';
import type { SocketAddress } from '../../../src/proxysocket/linux/sys/address.ts';
import { DEFAULT_LIMITS } from '../../../src/proxysocket/limits.ts';
import { systemClock } from '../../../src/util/clock.ts';
import { inlineLoop } from '../../support/engine-under-test.ts';
import { endpointAt, namedServer, request } from '../../support/tcp-peers.ts';
import { almostOne, portOf, tcpSpec } from '../../support/tcp-rig.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const PLENTY = new ProcessDescriptors({ limit: 20_000, reserve: 0 });

function content({ memory, start, left }: KeptBytes): string {
  return Buffer.from(memory.bytes.subarray(start, start + left)).toString();
}

linuxTest('a small rest is copied, and lives on while others read', (t) => {
  const memory = new RelayMemory(newSys(), 4 * MIB, PLENTY);
  const { current } = memory;
  current.bytes.set(Buffer.from('....rest'));
  const kept = memory.keep(4, 8);
  t.equal(memory.current, current);
  t.equal(kept.memory.length, 4 * KIB, 'as little as does');
  current.bytes.fill(0);
  t.equal(content(kept), 'rest');
  t.equal(memory.used, 0, 'every relay may keep so much');
  memory.release(kept);
  t.equal(memory.keep(0, 1).memory, kept.memory, 'and leaves it to the next one');
});

linuxTest('a large rest keeps its buffer, and another one replaces it', (t) => {
  const memory = new RelayMemory(newSys(), 4 * MIB, PLENTY);
  const { current } = memory;
  current.bytes.set(Buffer.from('large'), 100);
  const kept = memory.keep(100, 900 * KIB);
  t.equal(kept.memory, current);
  t.not(memory.current, current);
  t.match(kept, { start: 100, left: 900 * KIB - 100 });
  memory.current.bytes.fill(1);
  t.equal(content({ ...kept, left: 5 }), 'large');
  t.equal(memory.used, MIB);
  memory.release(kept);
  t.equal(memory.used, 0);
});

linuxTest('the budget makes reads smaller, never rests larger', (t) => {
  const changes = collect(t, limitChanged);
  const memory = new RelayMemory(newSys(), MIB + 256 * KIB, PLENTY);
  const limits: number[] = [];
  const all: KeptBytes[] = [];
  for (let count = 0; count < 3; count += 1) {
    const limit = memory.readLimit;
    limits.push(limit);
    all.push(memory.keep(0, limit));
    t.ok(memory.used <= MIB + 256 * KIB);
  }
  t.same(limits, [MIB, 64 * KIB, 64 * KIB]);
  t.match(changes, [{ limit: 'bulk-buffer-budget', reached: true }]);
  for (const kept of all) memory.release(kept);
  t.equal(memory.readLimit, MIB);
  t.equal(memory.used, 0);
  t.match(changes.at(-1), { reached: false });
});

linuxTest('without a budget everything still works, in small steps', (t) => {
  const memory = new RelayMemory(newSys(), 0, PLENTY);
  t.equal(memory.readLimit, 64 * KIB);
  const kept = memory.keep(0, 64 * KIB);
  t.equal(kept.left, 64 * KIB);
  memory.release(kept);
  t.equal(memory.used, 0);
});

linuxTest('pipes are for bulk flows, and are closed with the last of them', (t) => {
  const before = openDescriptors();
  const memory = new RelayMemory(newSys(), 4 * MIB, PLENTY);
  t.equal(memory.takePipe(), undefined);
  memory.noteBulk(true);
  memory.noteBulk(true);
  const pipe = memory.takePipe();
  t.equal(openDescriptors(), before + 2);
  if (pipe === undefined) throw new Error('no pipe');
  memory.givePipe(pipe);
  t.equal(memory.takePipe(), pipe, 'an empty one serves any');
  memory.noteBulk(false);
  memory.noteBulk(false);
  t.equal(openDescriptors(), before + 2, 'it is in use');
  memory.givePipe(pipe);
  t.equal(openDescriptors(), before);
});

linuxTest('what is left in a pipe is within the budget, and goes with it', (t) => {
  const before = openDescriptors();
  const memory = new RelayMemory(newSys(), 2 * MIB, PLENTY);
  memory.noteBulk(true);
  memory.noteBulk(true);
  const take = (): Pipe => {
    const pipe = memory.takePipe();
    if (pipe === undefined) throw new Error('no pipe');
    return pipe;
  };
  const kept = [1, 2].map((left) => memory.keepPipe(take(), left));
  t.equal(memory.used, 2 * MIB);
  t.equal(memory.takePipe(), undefined, 'the budget is used up');
  const [one, other] = kept;
  if (one === undefined || other === undefined) throw new Error('two are kept');
  one.left = 0;
  memory.release(one);
  memory.release(other);
  t.equal(memory.used, 0);
  t.equal(openDescriptors(), before + 2, 'one that is not empty is of no use to anyone else');
  t.equal(memory.takePipe(), one.pipe);
  memory.noteBulk(false);
  memory.noteBulk(false);
  memory.givePipe(one.pipe);
  t.equal(openDescriptors(), before);
});

linuxTest('if there are no pipes, they are not requested repeatedly', (t) => {
  const sys = newSys();
  const memory = new RelayMemory(sys, 4 * MIB, PLENTY);
  let asked = 0;
  const { pipes } = sys;
  const open = pipes.open.bind(pipes);
  pipes.open = () => {
    asked += 1;
    return undefined;
  };
  memory.noteBulk(true);
  memory.noteBulk(true);
  t.equal(memory.takePipe(), undefined);
  t.equal(memory.takePipe(), undefined);
  t.equal(asked, 1);
  memory.noteBulk(false);
  memory.noteBulk(false);
  pipes.open = open;
  memory.noteBulk(true);
  memory.noteBulk(true);
  const pipe = memory.takePipe();
  t.ok(pipe, 'there may be some the next time');
  if (pipe !== undefined) pipes.close(pipe);
});

linuxTest('pipes count as descriptors, and never use the last ones', (t) => {
  const changes = collect(t, limitChanged);
  const descriptors = new ProcessDescriptors({ limit: 40, reserve: 0 });
  const sys = newSys();
  const memory = new RelayMemory(sys, 64 * MIB, descriptors);
  memory.noteBulk(true);
  const pipes = [memory.takePipe(), memory.takePipe()];
  t.equal(descriptors.used, 4);
  t.equal(memory.takePipe(), undefined, 'an eighth is for pipes');
  const [one, other] = pipes;
  if (one === undefined || other === undefined) throw new Error('there are two');
  memory.givePipe(one);
  t.equal(descriptors.used, 4, 'it waits for the next one');
  t.equal(memory.takePipe(), one);
  t.ok(descriptors.acquire(36), 'clients may have the others');
  memory.noteBulk(false);
  memory.givePipe(one);
  memory.givePipe(other);
  t.equal(descriptors.used, 36);
  t.ok(descriptors.acquire(3));
  memory.noteBulk(true);
  t.equal(memory.takePipe(), undefined, 'one is not enough');
  memory.noteBulk(false);
  const { pipes: system } = sys;
  system.open = () => undefined;
  descriptors.release(39);
  memory.noteBulk(true);
  t.equal(memory.takePipe(), undefined);
  t.equal(descriptors.used, 0, 'what the system did not give is not counted');
  t.same(changes, [], 'copying is no limit that anyone has to know of');
});

linuxTest('a connection to itself is a refused one', async (t) => {
  const sys = newSys();
  const gone = endpointAt(await freePort());
  const good = await namedServer(t, 'good');
  // As the kernel does by chance: our side gets the port that it connects to.
  const connect = sys.sockets.connect.bind(sys.sockets);
  sys.sockets.connect = (fd: number, to: SocketAddress) => {
    if (to.port === gone.port) sys.sockets.bind(fd, gone);
    return connect(fd, to);
  };
  const failed = collect(t, connectFailed);
  const engine = createDataPlane(inlineLoop(t, sys), {
    limits: DEFAULT_LIMITS,
    clock: systemClock,
    random: almostOne,
    descriptorLimit: 1000,
  });
  t.teardown(() => engine.destroy());
  await engine.apply([{ kind: 'set', spec: tcpSpec([gone, good.endpoint]) }]);
  t.equal(await request(t, portOf(engine)), 'good');
  t.match(failed, [{ cause: 'refused', error: /itself/ }]);
  t.match(engine.snapshot(), [{ counters: { retries: 1, bytesOut: 4 } }]);
});
