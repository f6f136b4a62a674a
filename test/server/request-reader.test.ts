/** Requests as they come in pieces from the network. */
import { once } from 'node:events';
import { connect, type ClientHttp2Stream } from 'node:http2';
import { status } from '@grpc/grpc-js';
import * as fc from 'fast-check';
import t, { type Test } from 'tap';
import { WatchReq } from '../../src/api/generated/localv1/api.ts';
import { MAX_REQUESTS_AHEAD } from '../../src/server/limits.ts';
import { SYNC_FRAME } from '../../src/api/frames.ts';
import { RequestReader } from '../../src/server/request-reader.ts';
import type { ApiServer } from '../../src/server/server.ts';
import { startApiRig } from '../support/api-rig.ts';
import { mutations, holds } from '../support/property.ts';
import { until } from '../support/until.ts';

function framed(message: Buffer, flag = 0): Buffer {
  const prefix = Buffer.alloc(5);
  prefix[0] = flag;
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

/** What comes of some pieces. */
function read(pieces: readonly Buffer[], maxMessageSize = 1000) {
  const requests: string[] = [];
  const broken: (readonly [code: status, problem: string])[] = [];
  const messages = new RequestReader({
    maxMessageSize,
    onRequest: (request) => requests.push(request.toString('latin1')),
    onBroken: (...why) => broken.push(why),
  });
  for (const piece of pieces) messages.take(piece);
  return { requests, broken };
}

t.test('the messages are the same, however the bytes are cut', async (t) => {
  const message = fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes));
  holds(
    t,
    fc.property(
      fc.array(message, { maxLength: 8 }),
      fc.array(fc.nat({ max: 400 }), { maxLength: 40 }),
      (sent, cuts) => {
        const all = Buffer.concat(sent.map((each) => framed(each)));
        const pieces: Buffer[] = [];
        let at = 0;
        for (const cut of cuts) {
          pieces.push(all.subarray(at, at + cut));
          at += cut;
        }
        pieces.push(all.subarray(at));
        const { requests, broken } = read(pieces);
        const wanted = sent.map((each) => each.toString('latin1'));
        return broken.length === 0 && JSON.stringify(requests) === JSON.stringify(wanted);
      },
    ),
  );
});

t.test('any bytes are read or refused once', async (t) => {
  const seeds = [
    framed(Buffer.from('request')),
    framed(Buffer.alloc(0)),
    framed(Buffer.alloc(900)),
  ];
  holds(
    t,
    fc.property(fc.array(mutations(seeds)), (pieces) => {
      const { requests, broken } = read(pieces);
      return broken.length <= 1 && requests.every(({ length }) => length <= 1000);
    }),
  );
});

t.test('a message above the limit is refused before it is there', async (t) => {
  const { requests, broken } = read(
    [framed(Buffer.from('ok')), framed(Buffer.alloc(1001)).subarray(0, 6), Buffer.alloc(10_000)],
    1000,
  );
  t.strictSame(requests, ['ok']);
  t.match(broken, [[status.RESOURCE_EXHAUSTED, /1001 bytes .* 1000/]]);
  t.equal(broken.length, 1, 'once');
  t.strictSame(read([framed(Buffer.alloc(1000))]).broken, []);
});

t.test('compressed requests are not understood, as by kpng', async (t) => {
  t.match(read([framed(Buffer.from('x'), 1)]).broken, [[status.UNIMPLEMENTED, /compressed/]]);
});

/** A function that calls Watch, over one connection. */
function caller(t: Test, { address }: ApiServer): () => ClientHttp2Stream {
  const port = address.kind === 'tcp' ? address.port : 0;
  const session = connect(`http://127.0.0.1:${port}`);
  t.teardown(() => session.destroy());
  const headers = {
    ':method': 'POST',
    ':path': '/localv1.Sets/Watch',
    'content-type': 'application/grpc',
    te: 'trailers',
  };
  return () => session.request(headers, { endStream: false });
}

t.test('a request of a real client in pieces, and two in one', async (t) => {
  const { cluster, server } = await startApiRig(t);
  cluster.service('demo/web').complete();
  const stream = caller(t, server)();
  let received = 0;
  const syncs = Promise.withResolvers<void>();
  stream.on('data', (chunk: Buffer) => {
    received += chunk.toString('hex').split('00000000020a00').length - 1;
    if (received === 1) cluster.service('demo/api');
    if (received === 2) syncs.resolve();
  });
  const request = framed(Buffer.from(WatchReq.encode({ nodeName: 'n' }).finish()));
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  for (const byte of request.subarray(0, -1)) {
    stream.write(Buffer.of(byte));
    await turn();
  }
  t.equal(received, 0);
  stream.write(Buffer.concat([request.subarray(-1), request]));
  await syncs.promise;
  t.pass('each has bought a change set');
});

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
