import { constants } from 'node:os';
import type { Test } from 'tap';
import type { EndpointSpec } from '../../../src/proxysocket/spec.ts';
import { ProcessDescriptors } from '../../../src/proxysocket/core/descriptors.ts';
import { limitChanged, connectFailed } from '../../../src/proxysocket/events.ts';
import { RelayMemory } from '../../../src/proxysocket/linux/tcp/memory.ts';
import type { Pinned } from '../../../src/proxysocket/linux/sys/memory.ts';
import { type Pipe, Sys } from '../../../src/proxysocket/linux/sys/sys.ts';
import { linuxTest, newSys, library } from '../../support/linux-sys.ts';
import { collect, openDescriptors, kernelPort, freePort } from '../../support/sockets.ts';
import type { SocketAddress } from '../../../src/proxysocket/linux/sys/abi.ts';
import { inlineEngine } from '../../support/engine-under-test.ts';
import { endpointAt, namedServer, request } from '../../support/tcp-peers.ts';
import { almostOne, portOf, tcpSpec, udpSpec } from '../../support/tcp-rig.ts';
import { openLibrary, type Library } from '../../../src/proxysocket/linux/sys/library.ts';
import {
  Datagrams,
  type Recipient,
  type Sending,
} from '../../../src/proxysocket/linux/sys/datagrams.ts';
import { UdpBackend, UdpClient } from '../../support/udp-peers.ts';
import { until } from '../../support/until.ts';

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

const { EAGAIN, EBADF, ECONNREFUSED, EMSGSIZE } = constants.errno;

/** A kernel that takes messages as scripted, and notes how many calls it got. */
function fakeKernel(outcomes: (number | 'ok')[]) {
  const lib = openLibrary(library().ffi);
  const calls: string[] = [];
  const answer = (name: string, fd: number, messages: number): number => {
    if (fd < 0) return -EBADF;
    calls.push(`${name} ${messages}`);
    let taken = 0;
    for (; taken < messages; taken += 1) {
      const outcome = outcomes[0] ?? 'ok';
      if (outcome !== 'ok' && taken > 0) break;
      outcomes.shift();
      if (outcome === 'ok') continue;
      return -outcome;
    }
    return taken;
  };
  const c = {
    ...lib.c,
    sendmmsg: (fd: number, _address: bigint, messages: number) => answer('sendmmsg', fd, messages),
    sendmsg: (fd: number) => answer('sendmsg', fd, 1),
  } as unknown as Library['c'];
  return { sys: new Sys({ ...lib, c }), calls };
}

/** Notes what became of datagrams. */
class Owner implements Sending {
  readonly log: string[] = [];
  readonly #endsAt: number | undefined;

  constructor(endsAt?: number) {
    this.#endsAt = endsAt;
  }

  sent(_to: Recipient | undefined, datagrams: number): void {
    this.log.push(`sent ${datagrams}`);
  }

  notSent(_to: Recipient | undefined, datagrams: number, errno: number): boolean {
    this.log.push(`lost ${datagrams}: ${errno}`);
    return errno !== this.#endsAt;
  }

  noSegments(): void {
    this.log.push('no segments');
  }
}

const FOUR = [100, 100, 100, 100];

function send(
  outcomes: (number | 'ok')[],
  segments: boolean,
  { sizes = FOUR, endsAt }: { sizes?: readonly number[]; endsAt?: number } = {},
) {
  const { sys, calls } = fakeKernel(outcomes);
  const datagrams = new Datagrams(sys, 64);
  datagrams.length = (slot) => sizes[slot] ?? 0;
  const owner = new Owner(endsAt);
  datagrams.add(owner, [...sizes.keys()], 0, sizes.length, undefined, segments);
  datagrams.flush(3);
  return { log: owner.log, calls };
}

linuxTest('several datagrams are sent in one call', (t) => {
  t.same(send([], false), { log: Array(4).fill('sent 1'), calls: ['sendmmsg 4'] });
  t.same(send([], true), { log: ['sent 4'], calls: ['sendmsg 1'] });
});

linuxTest('a message that exceeds the path MTU is sent as single datagrams, in order', (t) => {
  const { log, calls } = send([EMSGSIZE], true);
  t.same(log, ['no segments', ...Array<string>(4).fill('sent 1')]);
  t.same(calls, Array(5).fill('sendmsg 1'));
});

linuxTest('if single datagrams would fail as well, they are not tried', (t) => {
  t.same(send([EAGAIN], true), { log: [`lost 4: ${EAGAIN}`], calls: ['sendmsg 1'] });
});

linuxTest('one datagram that is lost does not stop the others', (t) => {
  const { log, calls } = send(['ok', EMSGSIZE], false);
  t.same(log, ['sent 1', `lost 1: ${EMSGSIZE}`, 'sent 1', 'sent 1']);
  t.same(calls, ['sendmmsg 4', 'sendmmsg 3', 'sendmmsg 2']);
});

linuxTest('nothing is sent through a socket that its owner has closed meanwhile', (t) => {
  const { log, calls } = send([ECONNREFUSED], false, { endsAt: ECONNREFUSED });
  t.equal(log.length, 4);
  t.equal(log[0], `lost 1: ${ECONNREFUSED}`);
  t.ok(log.every((each) => each.startsWith('lost 1')));
  t.same(calls, ['sendmmsg 4']);
});

linuxTest('datagrams of one size go as one message', (t) => {
  for (const [sizes, messages] of [
    [[100, 100, 100], 1],
    // Only the last may be smaller.
    [[100, 100, 40, 100], 2],
    [[100, 101], 2],
    // An empty one cannot be part of a message.
    [[100, 0, 100], 3],
    [[0, 0], 2],
    // The limits of a message.
    [[30_000, 30_000, 30_000], 2],
    [Array<number>(64).fill(10), 1],
  ] as const)
    t.equal(send([], true, { sizes }).log.length, messages, sizes.join());
});

linuxTest('answers of one turn leave from the sockets that their clients asked', async (t) => {
  const backend = await UdpBackend.start(t, () => undefined);
  const listen = [{ port: await freePort() }, { port: await freePort() }];
  const engine = inlineEngine(t, {}, newSys());
  await engine.apply([{ kind: 'set', spec: udpSpec([backend.spec], { listen }) }]);
  const clients = await Promise.all(listen.map(() => UdpClient.open(t)));
  for (const [index, client] of clients.entries()) client.send('who?', listen[index]?.port ?? 0);
  await until(() => backend.received.length === 2);
  for (const { remote } of backend.received) backend.send(Buffer.from('me'), remote);
  await until(() => clients.every(({ replies }) => replies.length === 1));
  for (const [index, { replies }] of clients.entries())
    t.equal(replies[0]?.from, `127.0.0.1:${listen[index]?.port}`);
});
