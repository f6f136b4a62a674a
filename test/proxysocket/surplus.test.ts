/** Fewer workers than there are sockets at a place: none of them is left out. */
import { once } from 'node:events';
import { connect } from 'node:net';
import type { Test } from 'tap';
import { closeInherited, keepInherited } from '../../src/proxysocket/core/inherited.ts';
import { openListener } from '../../src/proxysocket/linux/open-listener.ts';
import * as k from '../../src/proxysocket/linux/sys/constants.ts';
import type { Listener, ServicePort } from '../../src/proxysocket/core/service-port.ts';
import type { ListenSpec } from '../../src/proxysocket/spec.ts';
import { withSurplus } from '../../src/proxysocket/core/surplus.ts';
import { linuxTest, newSys } from '../support/linux-sys.ts';

const OWNER = { name: 'd/web:http' } as ServicePort;
const CLIENTS = 64;

/** Sockets that share a port, as the workers of a former process have left them. */
function formerSockets(t: Test, count: number) {
  const sys = newSys();
  const { sockets } = sys;
  const fds: number[] = [];
  let port = 0;
  for (let rank = 0; rank < count; rank += 1) {
    const fd = sockets.stream(4);
    sockets.setOption(fd, k.SOL_SOCKET, k.SO_REUSEPORT, 1);
    sockets.bind(fd, sys.sockaddr({ address: '127.0.0.1', port }));
    sockets.listen(fd, CLIENTS);
    port = sockets.localAddress(fd)?.port ?? 0;
    sockets.steer(fd, count);
    fds.push(fd);
  }
  t.teardown(() => {
    closeInherited();
    for (const fd of fds) sockets.close(fd);
  });
  const place = { protocol: 'TCP', address: '127.0.0.1', port } as const;
  keepInherited(
    fds.map((fd) => ({ ...place, fd })),
    [],
  );
  return { sys, fds, port };
}

/** What a worker of some opens at the port; its listeners do nothing but keep their descriptor. */
async function openWorker(
  sys: ReturnType<typeof newSys>,
  spec: ListenSpec,
): Promise<{ readonly fds: number[]; readonly held: () => number; readonly listener: Listener }> {
  const fds: number[] = [];
  let held = 1;
  const listen = async (each: ListenSpec): Promise<Listener> => {
    const fd = openListener({ sys, former: undefined }, 'TCP', each, {
      prepare: () => undefined,
      listen: (opened) => sys.sockets.listen(opened, CLIENTS),
    });
    fds.push(fd);
    const { address, port: boundPort } = each;
    const assign = (): void => undefined;
    return { protocol: 'TCP', family: 4, address, boundPort, assign, close: async () => undefined };
  };
  const listener = await withSurplus(await listen(spec), {
    acceptor: { listen } as never,
    owner: OWNER,
    listen: spec,
    hold: () => (held += 1) > 0,
    drop: () => (held -= 1),
  });
  return { fds, held: () => held, listener };
}

const spec = (port: number, sockets: number, joins: boolean): ListenSpec => ({
  address: '127.0.0.1',
  port,
  traffic: 'internal',
  ...(sockets > 1 && { group: { sockets, joins } }),
});

linuxTest(
  'workers share the sockets that there are, and the kernel leads clients to all',
  async (t) => {
    const { sys, fds, port } = formerSockets(t, 4);
    const one = await openWorker(sys, spec(port, 2, false));
    const other = await openWorker(sys, spec(port, 2, true));
    t.same([one.fds.length, other.fds.length], [2, 2]);
    t.same(new Set([...one.fds, ...other.fds]), new Set(fds), 'each by one of them');
    closeInherited();
    for (let client = 1; client <= CLIENTS; client += 1) {
      const socket = connect({
        host: '127.0.0.1',
        port,
        localAddress: `127.0.${client}.${client}`,
      });
      await once(socket, 'connect');
      socket.destroy();
    }
    for (const { fds: own } of [one, other]) {
      let clients = 0;
      for (const fd of own) {
        for (let got = sys.sockets.accept(fd); got >= 0; got = sys.sockets.accept(fd)) {
          clients += 1;
          sys.sockets.close(got);
        }
      }
      t.ok(clients > CLIENTS / 4, `${clients} of ${CLIENTS}`);
    }
  },
);

linuxTest('what cannot be shared by equal parts is shared, too', async (t) => {
  const { sys, port } = formerSockets(t, 5);
  const first = await openWorker(sys, spec(port, 3, false));
  const second = await openWorker(sys, spec(port, 3, true));
  const third = await openWorker(sys, spec(port, 3, true));
  t.same([first.fds.length, second.fds.length, third.fds.length], [2, 2, 1]);
});

linuxTest('one worker has all of them, until it closes', async (t) => {
  const { sys, port } = formerSockets(t, 3);
  const { fds, held, listener } = await openWorker(sys, spec(port, 1, false));
  t.equal(fds.length, 3);
  t.equal(held(), 3, 'each takes descriptors');
  t.equal(listener.boundPort, port);
  await listener.close();
  await listener.close();
  t.equal(held(), 1, 'the table gives back that of the first');
});
