/** Service ports whose clients arrive at a shared socket, before and at their first client. */
import t from 'tap';
import { createEngine } from '../../src/proxysocket/assemble.ts';
import { endpointInvalid } from '../../src/proxysocket/events.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import { NodeUdpTransport } from '../../src/proxysocket/node/udp/transport.ts';
import type { EndpointSpec, EngineChange, ListenSpec } from '../../src/proxysocket/spec.ts';
import type { AcceptOwner, TcpClient } from '../../src/proxysocket/tcp/transport.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { collect } from '../support/sockets.ts';

function set(
  name: string,
  transparent: NonNullable<ListenSpec['transparent']>,
  endpoints: readonly EndpointSpec[] = [],
): EngineChange {
  const listen = [{ address: '127.0.0.1', port: 0, traffic: 'internal', transparent }] as const;
  const spec = { name, protocol: 'TCP', listen, endpoints, affinity: { kind: 'none' } } as const;
  return { kind: 'set', spec };
}

const to = (address: string): EndpointSpec => {
  return { address, port: 80, internal: true, external: true };
};

/** An engine with one shared socket and service ports `d/0`, `d/1` at 10.0.0.0:80, 10.0.0.1:80. */
async function setUp(...endpoints: string[]) {
  const sockets: AcceptOwner[] = [];
  let dials = 0;
  const engine = createEngine(
    'linux',
    { limits: DEFAULT_LIMITS, clock: new FakeClock(), random: () => 0, descriptorLimit: 10_000 },
    (context) => ({
      tcp: {
        async listen(_spec, owner) {
          sockets.push(owner);
          return { boundPort: 40_000, close: async () => undefined };
        },
        afterSockets: (callback) => callback(),
        destroy: async () => undefined,
      },
      udp: new NodeUdpTransport(context),
    }),
  );
  await engine.apply([
    set('all', []),
    ...endpoints.map((address, index) =>
      set(`d/${index}`, [{ address: `10.0.0.${index}`, port: 80 }], [to(address)]),
    ),
  ]);
  const [socket] = sockets;
  if (socket === undefined) throw new Error('it does not listen');
  const connect = (address: string): void => {
    const client: TcpClient = {
      remoteAddress: () => ({ address: '192.0.2.1', port: 1 }),
      localAddress: () => ({ address, port: 80 }),
      reset: () => undefined,
      hold: () => undefined,
      release: () => undefined,
      readHead: () => undefined,
      dial() {
        dials += 1;
        return new Error('no network');
      },
    };
    socket.accepted(client);
  };
  const counters = (name: string) => engine.snapshot(new Set([name]))[0]?.counters;
  return { engine, socket, connect, counters, dials: () => dials };
}

t.test('invalid endpoints are reported when they are set, once', async (t) => {
  const invalid = collect(t, endpointInvalid);
  const { engine, connect } = await setUp('example.org');
  t.match(invalid, [{ servicePort: 'd/0', endpoint: 'example.org:80' }]);
  await engine.apply([{ kind: 'endpoints', name: 'd/0', endpoints: [to('example.net')] }]);
  t.match(invalid[1], { servicePort: 'd/0', endpoint: 'example.net:80' });
  connect('10.0.0.0');
  t.equal(invalid.length, 2);
});

t.test('clients that cannot be accepted are counted without any so far', async (t) => {
  const { engine, socket, connect, counters } = await setUp('10.1.0.1', '10.1.0.1');
  socket.acceptFailed();
  t.match(counters('d/0'), { connections: 0, rejectedLimit: 1 });
  connect('10.0.0.1');
  await engine.apply([{ kind: 'remove', name: 'd/1' }]);
  socket.acceptFailed();
  t.match(counters('d/0'), { rejectedLimit: 2 }, 'for one that is still there');
});

t.test('a loop through a service port without clients is found at once', async (t) => {
  const { connect, counters, dials } = await setUp('10.0.0.1', '10.0.0.0');
  connect('10.0.0.0');
  t.match(counters('d/0'), { connections: 1, connectErrors: { loop: 1 } });
  t.equal(dials(), 0);
});
