import { constants } from 'node:os';
import { openLibrary, type Library } from '../../../src/proxysocket/linux/sys/library.ts';
import { Sys } from '../../../src/proxysocket/linux/sys/sys.ts';
import { DatagramSlots } from '../../../src/proxysocket/linux/sys/datagrams.ts';
import { Sender, type Sending } from '../../../src/proxysocket/linux/sys/sender.ts';
import { library, linuxTest } from '../../support/linux-sys.ts';

const { EAGAIN, ECONNREFUSED, EMSGSIZE } = constants.errno;

/** A kernel that takes messages as scripted, and notes how many calls it got. */
function fakeKernel(outcomes: (number | 'ok')[]) {
  const lib = openLibrary(library().ffi);
  const calls: string[] = [];
  const answer = (name: string, messages: number): number => {
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
    sendmmsg: (_fd: number, _address: bigint, messages: number) => answer('sendmmsg', messages),
    sendmsg: () => answer('sendmsg', 1),
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

  sent(way: string, datagrams: number): void {
    this.log.push(`${way} ${datagrams}`);
  }

  notSent(_way: string, datagrams: number, errno: number): boolean {
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
  const slots = new DatagramSlots(sys, 64);
  slots.length = (slot) => sizes[slot] ?? 0;
  const sender = new Sender(sys, 'request', slots);
  const owner = new Owner(endsAt);
  sender.add(owner, [...sizes.keys()], 0, sizes.length, undefined, segments);
  sender.flush(3);
  return { log: owner.log, calls };
}

linuxTest('several datagrams are sent in one call', (t) => {
  t.same(send([], false), { log: Array(4).fill('request 1'), calls: ['sendmmsg 4'] });
  t.same(send([], true), { log: ['request 4'], calls: ['sendmsg 1'] });
});

linuxTest('a message that exceeds the path MTU is sent as single datagrams, in order', (t) => {
  const { log, calls } = send([EMSGSIZE], true);
  t.same(log, ['no segments', ...Array<string>(4).fill('request 1')]);
  t.same(calls, Array(5).fill('sendmsg 1'));
});

linuxTest('if single datagrams would fail as well, they are not tried', (t) => {
  t.same(send([EAGAIN], true), { log: [`lost 4: ${EAGAIN}`], calls: ['sendmsg 1'] });
});

linuxTest('one datagram that is lost does not stop the others', (t) => {
  const { log, calls } = send(['ok', EMSGSIZE], false);
  t.same(log, ['request 1', `lost 1: ${EMSGSIZE}`, 'request 1', 'request 1']);
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
