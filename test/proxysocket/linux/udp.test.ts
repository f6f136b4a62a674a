import { constants } from 'node:os';
import { openLibrary, type Library } from '../../../src/proxysocket/linux/sys/library.ts';
import { Sys } from '../../../src/proxysocket/linux/sys/sys.ts';
import {
  Datagrams,
  type Recipient,
  type Sending,
} from '../../../src/proxysocket/linux/sys/datagrams.ts';
import { inlineEngine } from '../../support/engine-under-test.ts';
import { library, linuxTest, newSys } from '../../support/linux-sys.ts';
import { freePort } from '../../support/sockets.ts';
import { udpSpec } from '../../support/tcp-rig.ts';
import { UdpBackend, UdpClient } from '../../support/udp-peers.ts';
import { until } from '../../support/until.ts';

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
  t.same(
    clients.map(({ replies }) => replies[0]?.from),
    listen.map(({ port }) => `127.0.0.1:${port}`),
  );
});
