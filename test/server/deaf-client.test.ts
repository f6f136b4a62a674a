import { connect } from 'node:http2';
import t from 'tap';
import { WatchReq } from '../../src/api/generated/localv1/api.ts';
import { operationsSent } from '../../src/server/events.ts';
import { startApiRig } from '../support/api-rig.ts';
import { pod } from '../support/cluster.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';

/** A request as it goes over the wire. */
function requestFrame(nodeName: string): Buffer {
  const message = WatchReq.encode({ nodeName }).finish();
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

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

  const { address } = server;
  const port = address.kind === 'tcp' ? address.port : 0;
  const session = connect(`http://127.0.0.1:${port}`);
  t.teardown(() => session.destroy());
  const deaf = session.request({
    ':method': 'POST',
    ':path': '/localv1.Sets/Watch',
    'content-type': 'application/grpc',
    te: 'trailers',
  });
  const requests = 2000;
  // Each is about another node than the one before, so that there is an answer at once.
  deaf.write(
    Buffer.concat(Array.from({ length: requests }, (_, i) => requestFrame(i % 2 ? 'a' : ''))),
  );
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
