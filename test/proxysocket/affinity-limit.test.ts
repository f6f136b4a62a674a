import t from 'tap';
import { limitChanged } from '../../src/proxysocket/events.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { echoServer, request } from '../support/tcp-peers.ts';
import { TcpRig } from '../support/tcp-rig.ts';
import { collect } from '../support/sockets.ts';

t.test(
  'clients above the limit of session affinity are told as one event, and so is room',
  async (t) => {
    const clock = new FakeClock();
    const rig = new TcpRig(t, { clock, limits: { maxAffinityClients: 2 } });
    const changes = collect(t, limitChanged);
    const { endpoint } = await echoServer(t);
    const port = await rig.serve([endpoint], {
      affinity: { kind: 'clientIP', timeoutSeconds: 10 },
    });
    const ask = async (from: string): Promise<void> => {
      t.equal(await request(t, port, from, { localAddress: from }), from);
    };
    await ask('127.0.0.1');
    await ask('127.0.0.2');
    t.same(changes, []);
    await ask('127.0.0.3');
    await ask('127.0.0.4');
    t.same(changes, [{ limit: 'max-affinity-clients', value: 2, reached: true }], 'told once');
    clock.advance(10_000);
    await ask('127.0.0.4');
    t.same(changes[1], { limit: 'max-affinity-clients', value: 2, reached: false });
  },
);

t.test(
  'all service ports together have a limit, and those that are removed give theirs back',
  async (t) => {
    const rig = new TcpRig(t, { limits: { maxAffinityClientsTotal: 2 } });
    const changes = collect(t, limitChanged);
    const { endpoint } = await echoServer(t);
    const affinity = { kind: 'clientIP', timeoutSeconds: 10 } as const;
    const first = await rig.serve([endpoint], { name: 'test/first:http', affinity });
    const second = await rig.serve([endpoint], { name: 'test/second:http', affinity });
    await request(t, first, 'one', { localAddress: '127.0.0.1' });
    await request(t, second, 'two', { localAddress: '127.0.0.1' });
    t.same(changes, []);
    await request(t, second, 'three', { localAddress: '127.0.0.2' });
    const limit = 'max-affinity-clients-total';
    t.same(changes, [{ limit, value: 2, reached: true }]);
    await rig.remove('test/second:http');
    t.same(changes[1], { limit, value: 2, reached: false });
  },
);
