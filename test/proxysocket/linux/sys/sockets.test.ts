import { type Sys } from '../../../../src/proxysocket/linux/sys/sys.ts';
import { createSocket } from 'node:dgram';
import { until } from '../../../support/until.ts';
import { once } from 'node:events';
import t from 'tap';
import { constants } from 'node:os';
import * as k from '../../../../src/proxysocket/linux/sys/abi.ts';
import { DatagramSlots } from '../../../../src/proxysocket/linux/sys/datagrams.ts';
import { Pinned } from '../../../../src/proxysocket/linux/sys/memory.ts';
import { systemError } from '../../../../src/proxysocket/linux/sys/abi.ts';
import { linuxTest, newSys } from '../../../support/linux-sys.ts';

/** Sockets that share a port of 127.0.0.1, steered or not. */
function group(sys: Sys, kind: 'stream' | 'datagram', steered: boolean) {
  const { sockets } = sys;
  const fds: number[] = [];
  let port = 0;
  for (let n = 0; n < SOCKETS; n += 1) {
    const fd = sockets[kind](4);
    sockets.setOption(fd, k.SOL_SOCKET, k.SO_REUSEPORT, 1);
    sockets.bind(fd, { address: '127.0.0.1', port });
    port = sockets.localAddress(fd)?.port ?? 0;
    if (kind === 'stream') sockets.listen(fd, 100);
    fds.push(fd);
  }
  const result = steered ? sockets.steer(fds[1] ?? -1, SOCKETS) : 0;
  return { fds, port, result };
}

const SOCKETS = 4;

const CLIENTS = Array.from({ length: 40 }, (_, n) => `127.0.${n % 5}.${10 + n}`);

/** How many sockets have something from each client, given who sent to which. */
function spread(seen: ReadonlyMap<string, ReadonlySet<number>>): number[] {
  return [...seen.values()].map(({ size }) => size);
}

linuxTest('error numbers are those of this system', (t) => {
  const known = k as unknown as Record<string, number>;
  const names = Object.keys(constants.errno).filter((name) => name in known);
  t.ok(names.length >= 12, `${names.length} of them`);
  for (const name of names) {
    t.equal(known[name], constants.errno[name as keyof typeof constants.errno], name);
  }
  t.match(systemError(9999, 'read').code, /9999/, 'also when it has no name');
  t.match(systemError(k.EAGAIN, 'read'), { code: 'EAGAIN', syscall: 'read', errno: -11 });
});

linuxTest('a failed call returns its error number', (t) => {
  const sys = newSys();
  const { sockets } = sys;
  const memory = new Pinned(sys.ffi, 8);
  t.equal(sockets.read(-1, memory, 8), -k.EBADF);
  t.equal(sockets.listen(-1, 1), -k.EBADF);
  t.equal(sockets.getOption(-1, k.SOL_SOCKET, k.SO_ERROR), -k.EBADF);
  t.equal(sockets.localAddress(-1), undefined);
  t.equal(sockets.queued(-1), 0);
  const fd = sockets.stream(4);
  t.equal(sockets.write(fd, memory, 8), -k.EPIPE, 'and no signal ends the process');
  t.equal(sockets.remoteAddress(fd), undefined);
  const nowhere = { address: '198.51.100.1', port: 0 };
  t.equal(sockets.bind(fd, nowhere), -constants.errno.EADDRNOTAVAIL);
  sockets.close(fd);
});

t.test('numbers that no call of this test has tried', (t) => {
  // From the kernel's own headers; a mistake in them would otherwise only show as a missing effect.
  t.match(k, { SO_LINGER: 13, TCP_KEEPIDLE: 4, TCP_KEEPINTVL: 5, TCP_KEEPCNT: 6, IPV6_V6ONLY: 26 });
  t.end();
});

linuxTest('datagram sockets work as well', async (t) => {
  const sys = newSys();
  const { fds, port, result } = group(sys, 'datagram', true);
  t.equal(result, 0);
  const slots = new DatagramSlots(sys, CLIENTS.length * 2);
  const seen = new Map<string, Set<number>>();
  let received = 0;
  const take = (): void => {
    for (const [index, fd] of fds.entries()) {
      const count = slots.receive(fd, 0, slots.count);
      for (let slot = 0; slot < count; slot += 1) {
        const { address } = slots.senderAddress(slot);
        seen.set(address, (seen.get(address) ?? new Set()).add(index));
        received += 1;
      }
    }
  };
  for (const address of CLIENTS) {
    for (let n = 0; n < 3; n += 1) {
      const client = createSocket('udp4');
      client.bind(0, address);
      await once(client, 'listening');
      await new Promise((resolve) => client.send('x', port, '127.0.0.1', resolve));
      client.close();
    }
  }
  await until(() => {
    take();
    return received === CLIENTS.length * 3;
  });
  for (const fd of fds) sys.sockets.close(fd);
  t.equal(seen.size, CLIENTS.length);
  t.ok(spread(seen).every((count) => count === 1));
});
