import type { Socket } from 'node:net';
import t from 'tap';
import { AcceptPriority } from '../../../../src/proxysocket/node/tcp/accept-priority.ts';
import { ENGINE } from '../../../support/engine-under-test.ts';
import { echoServer, request, tcpClient } from '../../../support/tcp-peers.ts';
import { TcpRig, WAYS } from '../../../support/tcp-rig.ts';
import { until } from '../../../support/until.ts';

/** Readers who all have data in every turn in which they may read. */
class Turns {
  readonly #ends: (() => void)[] = [];
  readonly #waiting = new Set<number>();
  readonly #readers: number;
  readonly #way = new AcceptPriority((callback) => this.#ends.push(callback));

  constructor(readers: number) {
    this.#readers = readers;
  }

  /** One turn of the loop. Returns how many have read in it. */
  turn({ accepts }: { accepts: boolean }): number {
    if (accepts) this.#way.accepted();
    let read = 0;
    for (let reader = 0; reader < this.#readers; reader += 1) {
      if (this.#waiting.has(reader)) continue;
      read += 1;
      const waits = this.#way.yields({
        goOn: () => {
          if (!this.#waiting.delete(reader)) throw new Error('it did not wait');
        },
      });
      if (waits) this.#waiting.add(reader);
    }
    for (const end of this.#ends.splice(0)) end();
    return read;
  }

  turns(count: number, accepts: boolean): number[] {
    return Array.from({ length: count }, () => this.turn({ accepts }));
  }
}

t.test('a client that comes alone stops nobody', (t) => {
  const loop = new Turns(500);
  t.equal(loop.turn({ accepts: true }), 500);
  t.same(loop.turns(3, false), [500, 500, 500]);
  t.end();
});

t.test('short turns stop nobody, however many clients come', (t) => {
  const loop = new Turns(10);
  t.same(new Set([...loop.turns(30, false), ...loop.turns(300, true)]), new Set([10]));
  t.end();
});

t.test('data waits while clients come, and is served now and then', (t) => {
  const loop = new Turns(500);
  t.same(loop.turns(3, true), [500, 500, 500]);
  const served = loop.turns(640, true);
  const full = served.filter((read) => read === 500).length;
  t.same(new Set(served), new Set([0, 500]), 'all or none');
  t.equal(full, 10, 'every 64 turns');
  t.end();
});

t.test('data goes on as soon as no client comes any more', (t) => {
  const loop = new Turns(500);
  t.same(loop.turns(5, true), [500, 500, 500, 500, 0], 'looked at, confirmed, held');
  t.equal(loop.turn({ accepts: false }), 0, 'the turn that shows it');
  t.same(loop.turns(3, false), [500, 500, 500]);
  t.same(loop.turns(4, true), [500, 500, 500, 0], 'and all that once more');
  t.end();
});

const BUSY = 256;
const NEW = 64;

/** Asks again as soon as it is answered. */
function keepBusy(socket: Socket, onAnswer: () => void): void {
  socket.on('data', () => {
    onAnswer();
    socket.write('again');
  });
  socket.write('first');
}

// Proxy, clients and endpoint share one thread, so the count is that of turns of its loop.
for (const { way, documentedOnly } of ENGINE === 'node' ? WAYS : []) {
  t.test(`${way}: new clients get in however many others are busy`, async (t) => {
    const rig = new TcpRig(t, { documentedOnly });
    const port = await rig.serve([(await echoServer(t)).endpoint]);
    let answers = 0;
    const busy = await Promise.all(Array.from({ length: BUSY }, () => tcpClient(t, port)));
    await until(() => rig.counters.active === BUSY);
    for (const socket of busy) keepBusy(socket, () => (answers += 1));
    await until(() => answers > 10 * BUSY);

    const before = answers;
    const fresh = Array.from({ length: NEW }, () => request(t, port, 'hello'));
    await until(() => rig.counters.connections === BUSY + NEW);
    const meanwhile = answers - before;
    // One accepted in each turn that serves all others would be 64 turns, with 64 answers in each.
    t.ok(meanwhile < 6 * BUSY, `${meanwhile} answers to ${BUSY} others meanwhile`);
    t.same(new Set(await Promise.all(fresh)), new Set(['hello']));
    const after = answers;
    await until(() => answers > after + 10 * BUSY);
    for (const socket of busy) socket.destroy();
    await until(() => rig.counters.active === 0);
  });
}
