/** What an engine says to clients whose endpoints are drained, in each kind of thread. */
import t from 'tap';
import { freePort } from '../support/sockets.ts';
import { connectionEnd, endpointAt } from '../support/tcp-peers.ts';
import { TcpRig } from '../support/tcp-rig.ts';
import { UdpClient } from '../support/udp-rig.ts';
import { until } from '../support/until.ts';

const drained = {
  ...endpointAt(9),
  internal: false,
  external: false,
  drained: ['internal'],
} as const;

t.test('TCP clients are told of a drain for their traffic only', async (t) => {
  const rig = new TcpRig(t);
  await rig.serve([drained], { listen: [{}, { traffic: 'external' }] });
  t.equal(await connectionEnd(t, rig.port()), 'ECONNRESET');
  t.match(rig.counters, { rejectedDrained: 1, rejectedNoEndpoint: 0 });
  t.equal(await connectionEnd(t, rig.port(undefined, 1)), 'ECONNRESET');
  t.match(rig.counters, { rejectedDrained: 1, rejectedNoEndpoint: 1 });
  await rig.endpoints([]);
  t.equal(await connectionEnd(t, rig.port()), 'ECONNRESET');
  t.match(rig.counters, { rejectedDrained: 1, rejectedNoEndpoint: 2 }, 'the drain is over');
});

t.test('UDP clients, too', async (t) => {
  const rig = new TcpRig(t);
  const listen = [
    { address: '127.0.0.1', port: await freePort(), traffic: 'internal' },
    { address: '127.0.0.1', port: await freePort(), traffic: 'external' },
  ] as const;
  const spec = {
    name: 'test/dns',
    protocol: 'UDP',
    listen,
    endpoints: [drained],
    affinity: { kind: 'none' },
  } as const;
  await rig.engine.apply([{ kind: 'set', spec }]);
  const counters = () => rig.snapshot('test/dns').counters;
  const client = await UdpClient.open(t);
  client.send('anybody?', listen[0].port);
  await until(() => counters().rejectedDrained === 1);
  client.send('anybody?', listen[1].port);
  await until(() => counters().rejectedNoEndpoint === 1);
  t.equal(counters().rejectedDrained, 1);
});
