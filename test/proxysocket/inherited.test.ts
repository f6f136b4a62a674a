import { openSync, fstatSync } from 'node:fs';
import {
  closeInherited,
  inheritedPort,
  keepInherited,
  takeInherited,
  type PreviousListener,
  type InheritedSocket,
} from '../../src/proxysocket/core/inherited.ts';
import { FakeHost, listenSpec } from '../support/fake-host.ts';
import t from 'tap';

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

t.test('a socket is taken once, by its address; only unused ones are closed', async (t) => {
  const [tcp, next, udp, rest] = [socket(80), socket(80), socket(80, 'UDP'), socket(81)];
  keepInherited([tcp, next, udp, rest], []);
  t.equal(takeInherited('TCP', '10.0.0.2', 80), undefined);
  const takes = () => takeInherited('TCP', '10.0.0.1', 80);
  t.same([takes(), takes(), takes()], [tcp.fd, next.fd, undefined], 'in order');
  t.equal(takeInherited('UDP', '10.0.0.1', 80), udp.fd);
  t.equal(closeInherited().length, 1);
  t.same([isOpen(tcp.fd), isOpen(rest.fd)], [true, false]);
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

t.test('one worker has all sockets of an address, until it closes', async (t) => {
  keepInherited([socket(80), socket(80), socket(80)], []);
  const host = new FakeHost({ descriptors: 4 });
  await host.set(listenSpec('a', ['10.0.0.1:80']));
  await host.set(listenSpec('b', ['10.0.0.2:80']));
  t.equal(host.tcp.size, 3);
  t.same(host.states('b'), ['KPNG_LIMIT_REACHED EMFILE'], 'each takes descriptors');
  await host.set(listenSpec('a', []));
  t.equal(host.tcp.size, 1);
  t.same(host.states('b'), ['80']);
});
