import { openSync, fstatSync } from 'node:fs';
import t from 'tap';
import {
  closeInherited,
  inheritedPort,
  keepInherited,
  takeInherited,
  type PreviousListener,
  type InheritedSocket,
} from '../../src/proxysocket/core/inherited.ts';

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

t.test('a socket is taken once, by its place', async (t) => {
  const [tcp, udp] = [socket(80), socket(80, 'UDP')];
  keepInherited([tcp, udp], []);
  t.equal(takeInherited('TCP', '10.0.0.2', 80), undefined);
  t.equal(takeInherited('TCP', '10.0.0.1', 81), undefined);
  t.equal(takeInherited('TCP', '10.0.0.1', 80), tcp.fd);
  t.equal(takeInherited('TCP', '10.0.0.1', 80), undefined);
  t.equal(takeInherited('UDP', '10.0.0.1', 80), udp.fd);
});

t.test('several sockets of a place are taken in their order', async (t) => {
  const sockets = [socket(80), socket(80), socket(80)];
  keepInherited(sockets, []);
  for (const { fd } of sockets) t.equal(takeInherited('TCP', '10.0.0.1', 80), fd);
  t.equal(takeInherited('TCP', '10.0.0.1', 80), undefined);
});

t.test('what nobody has taken is closed, and only that', async (t) => {
  const [mine, rest] = [socket(80), socket(81)];
  keepInherited([mine, rest], []);
  takeInherited('TCP', '10.0.0.1', 80);
  t.equal(closeInherited().length, 1);
  t.same([isOpen(mine.fd), isOpen(rest.fd)], [true, false]);
  t.same(closeInherited(), []);
  t.equal(takeInherited('TCP', '10.0.0.1', 81), undefined);
});

t.test('places that ask for any port are told the former one', async (t) => {
  keepInherited([], [FORMER, { ...FORMER, asked: 36_001, port: 36_001, key: 'TCP 0.0.0.0 36001' }]);
  t.equal(inheritedPort(FORMER.key), 40_123);
  t.equal(inheritedPort('TCP 0.0.0.0 36001'), undefined, 'it is known which');
  closeInherited();
  t.equal(inheritedPort(FORMER.key), undefined);
});

t.test('without an inheritance there is nothing', async (t) => {
  t.equal(takeInherited('TCP', '10.0.0.1', 80), undefined);
  t.equal(inheritedPort('any'), undefined);
});
