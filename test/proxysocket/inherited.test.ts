import { openSync, fstatSync } from 'node:fs';
import {
  closeInherited,
  inheritedPort,
  keepInherited,
  takeInherited,
  type PreviousListener,
  type InheritedSocket,
} from '../../src/proxysocket/core/inherited.ts';
import { ProcessDescriptors } from '../../src/proxysocket/core/descriptors.ts';
import { ListenerTable } from '../../src/proxysocket/core/listener-table.ts';
import { LoopGuard } from '../../src/proxysocket/core/loop-guard.ts';
import { SharedServicePorts } from '../../src/proxysocket/core/shared-service-ports.ts';
import { openListener } from '../../src/proxysocket/linux/open-listener.ts';
import * as k from '../../src/proxysocket/linux/sys/abi.ts';
import type { OwnedListener } from '../../src/proxysocket/core/listener.ts';
import type { ServicePort } from '../../src/proxysocket/core/service-port.ts';
import { systemClock } from '../../src/util/clock.ts';
import type { ListenSpec } from '../../src/proxysocket/spec.ts';
import { linuxTest, newSys } from '../support/linux-sys.ts';
import t, { type Test } from 'tap';

function socket(port: number, protocol: 'TCP' | 'UDP' = 'TCP'): InheritedSocket {
  return { protocol, address: '10.0.0.1', port, fd: openSync('/dev/null', 'r') };
}

function isOpen(fd: number): boolean {
  try {
    fstatSync(fd);
    return true;
  } catch {
    return false;
  }
}

const FORMER: PreviousListener = {
  servicePort: 'd/web:http',
  protocol: 'TCP',
  address: '0.0.0.0',
  traffic: 'internal',
  asked: 0,
  port: 40_123,
  key: 'TCP 0.0.0.0 0 d/web:http internal 0',
};

t.afterEach(() => closeInherited());

t.test('a socket is taken once, by its address', async (t) => {
  const [tcp, next, udp] = [socket(80), socket(80), socket(80, 'UDP')];
  keepInherited([tcp, next, udp], []);
  t.equal(takeInherited('TCP', '10.0.0.2', 80), undefined);
  t.equal(takeInherited('TCP', '10.0.0.1', 81), undefined);
  t.equal(takeInherited('TCP', '10.0.0.1', 80), tcp.fd);
  t.equal(takeInherited('TCP', '10.0.0.1', 80), next.fd, 'in order');
  t.equal(takeInherited('TCP', '10.0.0.1', 80), undefined);
  t.equal(takeInherited('UDP', '10.0.0.1', 80), udp.fd);
});

t.test('only unused sockets are closed', async (t) => {
  const [mine, rest] = [socket(80), socket(81)];
  keepInherited([mine, rest], []);
  takeInherited('TCP', '10.0.0.1', 80);
  t.equal(closeInherited().length, 1);
  t.same([isOpen(mine.fd), isOpen(rest.fd)], [true, false]);
  t.same(closeInherited(), []);
  t.equal(takeInherited('TCP', '10.0.0.1', 81), undefined);
});

t.test('listeners on any port get the previous one', async (t) => {
  keepInherited([], [FORMER, { ...FORMER, asked: 36_001, port: 36_001, key: 'TCP 0.0.0.0 36001' }]);
  t.equal(inheritedPort(FORMER.key), 40_123);
  t.equal(inheritedPort('TCP 0.0.0.0 36001'), undefined, 'it is known which');
  closeInherited();
  t.equal(inheritedPort(FORMER.key), undefined);
});

/** Fewer workers than there are sockets at a place: none of them is left out. */

const OWNER = { name: 'd/web:http', protocol: 'TCP' } as ServicePort;
const CLIENTS = 64;

/** Sockets that share a port, as the workers of an old process have left them. */
function formerSockets(t: Test, count: number) {
  const sys = newSys();
  const { sockets } = sys;
  const fds: number[] = [];
  let port = 0;
  for (let rank = 0; rank < count; rank += 1) {
    const fd = sockets.stream(4);
    sockets.setOption(fd, k.SOL_SOCKET, k.SO_REUSEPORT, 1);
    sockets.bind(fd, { address: '127.0.0.1', port });
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

linuxTest('one worker has all of them, until it closes', async (t) => {
  const { sys, port } = formerSockets(t, 3);
  const fds: number[] = [];
  let closed = 0;
  const listen = async (spec: ListenSpec): Promise<OwnedListener> => {
    const fd = openListener({ sys, opened: () => undefined }, 'TCP', spec, {
      prepare: () => undefined,
      listen: (opened) => sys.sockets.listen(opened, CLIENTS),
    });
    fds.push(fd);
    const { address, port: boundPort } = spec;
    const close = async (): Promise<void> => void (closed += 1);
    return { address, boundPort, close } as OwnedListener;
  };
  const descriptors = new ProcessDescriptors({ limit: 103, reserve: 0 });
  const table = new ListenerTable({
    kind: 'linux',
    listen,
    descriptors,
    loops: new LoopGuard(systemClock, new SharedServicePorts()),
    clock: systemClock,
    random: () => 0,
    enqueue: () => undefined,
  });
  table.set(OWNER, [{ address: '127.0.0.1', port, traffic: 'internal' }]);
  await table.settle();
  t.equal(fds.length, 3);
  t.equal(descriptors.capacity, 100, 'each takes descriptors');
  await table.close();
  t.equal(closed, 3);
  t.equal(descriptors.capacity, 103);
});
