/** Requests as they come in pieces from the network, and the pieces of the answers. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { status } from '@grpc/grpc-js';
import * as fc from 'fast-check';
import t, { type Test } from 'tap';
import { WatchReq } from '../../src/api/generated/localv1/api.ts';
import { operationsSent } from '../../src/server/events.ts';
import { MAX_REQUESTS_AHEAD } from '../../src/server/limits.ts';
import { setFrame, SYNC_FRAME } from '../../src/api/frames.ts';
import { Hub, piecesOf, Refusal, RequestReader, type Watch } from '../../src/server/watch.ts';
import type { ApiServer } from '../../src/server/server.ts';
import { framed, openStreams, portOf, startApiRig } from '../support/api-rig.ts';
import { pod } from '../support/cluster.ts';
import { collect } from '../support/sockets.ts';
import { holds } from '../support/property.ts';
import { until } from '../support/until.ts';

/** What comes of some pieces. */
function read(pieces: readonly Buffer[], maxMessageSize = 1000) {
  const requests: string[] = [];
  const messages = new RequestReader(maxMessageSize);
  for (const piece of pieces) {
    try {
      for (const each of messages.read(piece)) requests.push(each.toString('latin1'));
    } catch (refusal) {
      if (!(refusal instanceof Refusal)) throw refusal;
      return { requests, refusal };
    }
  }
  return { requests };
}

/** Whether the messages come out of a stream that is cut into pieces of these lengths and the rest. */
function survivesCuts(sent: readonly Buffer[], cuts: readonly number[]): boolean {
  const all = Buffer.concat(sent.map((each) => framed(each)));
  const pieces: Buffer[] = [];
  let at = 0;
  for (const cut of [...cuts, all.length]) {
    pieces.push(all.subarray(at, at + cut));
    at += cut;
  }
  const { requests, refusal } = read(pieces);
  const wanted = sent.map((each) => each.toString('latin1'));
  return refusal === undefined && JSON.stringify(requests) === JSON.stringify(wanted);
}

t.test('the messages are the same, however the bytes are cut', async (t) => {
  const inPrefix = survivesCuts([Buffer.alloc(100), Buffer.alloc(1)], [107]);
  t.ok(inPrefix, 'a short one behind a long one, cut in its prefix');
  const message = fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes));
  const cuts = fc.array(fc.nat({ max: 400 }), { maxLength: 40 });
  holds(t, fc.property(fc.array(message, { maxLength: 8 }), cuts, survivesCuts));
});

t.test('a message above the limit is refused before it is there', async (t) => {
  const ok = framed(Buffer.from('ok'));
  const { requests, refusal } = read([ok, framed(Buffer.alloc(1001)).subarray(0, 6)]);
  t.strictSame(requests, ['ok']);
  t.match(refusal, { status: status.RESOURCE_EXHAUSTED, message: /1001 bytes .* 1000/ });
  t.strictSame(read([framed(Buffer.alloc(1000))]).refusal, undefined);
});

/** Calls Watch over one connection. */
function caller(t: Test, server: ApiServer) {
  return openStreams(t, connect(portOf(server), '127.0.0.1')).open;
}

t.test('requests far ahead are read once there is room for them', async (t) => {
  const { cluster, server } = await startApiRig(t);
  const call = caller(t, server);
  const [greedy, other] = [call(), call()];
  const empty = framed(Buffer.alloc(0));
  greedy.write(Buffer.concat(Array(MAX_REQUESTS_AHEAD).fill(empty)));
  await once(greedy, 'data');
  let received = '';
  greedy.on('data', (piece: Buffer) => (received += piece.toString('latin1')));
  let ended: unknown;
  greedy.on('trailers', (headers) => (ended = headers['grpc-status']));
  greedy.write(framed(Buffer.alloc(0), 1));
  // The server has received both when it answers this one.
  other.write(empty);
  await once(other, 'data');
  cluster.complete();
  let round = 0;
  await until(() => {
    cluster.service('demo/web', { annotations: { round: `${(round += 1)}` } });
    return ended !== undefined;
  });
  t.equal(ended, String(status.UNIMPLEMENTED), 'the invalid request is read');
  const answers = received.split(SYNC_FRAME.toString('latin1')).length - 1;
  t.equal(answers, MAX_REQUESTS_AHEAD, 'after the others were answered');
});

t.test('a client that sends requests without reading does not fill the memory', async (t) => {
  const { cluster, server, watch } = await startApiRig(t);
  const hostname = 'x'.repeat(50_000);
  cluster.atOnce((all) => {
    all.service('demo/web', { internalTrafficToLocal: true });
    all.endpoints('demo/web', pod('a', '', 'a', { endpoint: { hostname } }));
  });
  cluster.complete();
  const events = collect(t, operationsSent);
  const sent = (): number => events.reduce((sum, { operations }) => sum + operations, 0);

  const deaf = caller(t, server)();
  const requests = 2000;
  // Each is about another node than the one before, so that there is an answer at once.
  const request = (nodeName: string): Buffer => framed(WatchReq.encode({ nodeName }).finish());
  deaf.write(Buffer.concat(Array.from({ length: requests }, (_, i) => request(i % 2 ? 'a' : ''))));
  await until(() => sent() > 2);
  // Meanwhile the server does a few things for another client, whose answers are two operations each.
  const quick = watch();
  const rounds = 20;
  for (let round = 0; round < rounds; round++) {
    cluster.service('demo/other', { annotations: { round: `${round}` } });
    quick.request('b');
    await quick.changeSet();
  }
  t.ok(sent() < 200, `${sent()} operations were sent, of ${2 * requests}`);

  let received = 0;
  deaf.on('data', (piece: Buffer) => (received += piece.length));
  await until(() => received > (requests / 2) * hostname.length);
  t.pass('when it reads it gets all of them');
});

t.test('frames of any size come out whole and in order, in pieces of a limited size', async (t) => {
  const sizes = [1, 100, 65_000, 400, 70_000, 3, 200_000].concat(Array(2000).fill(90));
  const frames = sizes.map((size, index) => setFrame(1, `ns/s${index}`, Buffer.alloc(size, index)));
  let made = 0;
  function* counted(): Generator<Buffer> {
    for (const frame of frames) {
      made += 1;
      yield frame;
    }
  }
  const parts: Buffer[] = [];
  for (const piece of piecesOf(counted())) {
    if (parts.length === 0) t.ok(made <= 4, `${made} frames are made for the first piece`);
    parts.push(Buffer.from(piece));
  }
  t.ok(Buffer.concat(parts).equals(Buffer.concat(frames)));
  const large = frames.filter(({ length }) => length > 65_536).length;
  t.equal(parts.filter(({ length }) => length > 65_536).length, large);
  t.ok(parts.length < 12, `${parts.length} pieces`);
});

t.test('a change while watches are polled is polled for again', async (t) => {
  const hub = new Hub();
  const polled: string[] = [];
  const watch = (name: string, onFirst = () => {}): Watch => {
    const poll = (): void => void (polled.push(name) === 2 && onFirst());
    return { poll } as Watch;
  };
  hub.watches.add(watch('a'));
  hub.watches.add(watch('b', () => hub.changed()));
  hub.changed();
  hub.changed();
  await until(() => polled.length >= 4);
  await new Promise(setImmediate);
  t.equal(polled.join(' '), 'a b a b');
});
