import { once } from 'node:events';
import { connect } from 'node:net';
import { dataPlaneFault } from '../../../src/proxysocket/events.ts';
import { ThreadEngine } from '../../../src/proxysocket/threads/engine.ts';
import { createNodeWorkers } from '../../../src/proxysocket/workers/create.ts';
import { order } from '../../support/crashing-order.ts';
import { linuxTest } from '../../support/linux-sys.ts';
import { collect } from '../../support/sockets.ts';
import { echoServer, endOf, request, tcpClient } from '../../support/tcp-peers.ts';
import { tcpSpec } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';

const module = new URL('../../support/crashing-node-worker.ts', import.meta.url);
/** Long enough for a client that comes while there is no thread. */
const backoff = { initialMs: 500, maxMs: 500, factor: 1, jitter: 0 };

linuxTest('a thread that throws resets its connections, and nobody who waits', async (t) => {
  order(0);
  const engine = new ThreadEngine({
    kind: 'node',
    module,
    backoff,
  });
  await engine.start();
  t.teardown(() => engine.destroy());
  const spec = tcpSpec([(await echoServer(t)).endpoint]);
  await engine.apply([{ kind: 'set', spec }]);
  const [listener] = engine.snapshot()[0]?.listeners ?? [];
  const port = listener?.state === 'listening' ? listener.boundPort : 0;
  const client = await tcpClient(t, port);
  client.write('x');
  await once(client, 'data');
  const end = endOf(client);
  const faults = collect(t, dataPlaneFault);
  order(1);
  engine.sync();
  t.equal(await end, 'ECONNRESET', 'not as if all had been sent');
  await until(() => faults.length > 0);
  t.match(faults[0], { what: 'worker-lost', error: { message: 'a crash' } });
  // There is no thread for half a second: whoever comes now waits in the socket, which has stayed.
  const waiting = connect({ port, host: '127.0.0.1' });
  await once(waiting, 'connect');
  waiting.end('still here');
  t.match(String((await once(waiting, 'data'))[0]), 'still here');
  t.equal(await request(t, port, 'again'), 'again');
  t.match(engine.snapshot(), [{ counters: { connections: 3 } }], 'counters go on');
});

linuxTest('where threads cannot share places, none of them is left', async (t) => {
  order(2);
  t.teardown(() => order(0));
  await t.rejects(createNodeWorkers(2, { module }), { name: 'UnfitError', message: /it rains/ });
});
