import { once } from 'node:events';
import { createSocket } from 'node:dgram';
import { connect } from 'node:net';
import * as k from '../../../../src/proxysocket/linux/sys/abi.ts';
import type { Sys } from '../../../../src/proxysocket/linux/sys/sys.ts';
import { linuxTest, newSys } from '../../../support/linux-sys.ts';
import { until } from '../../../support/until.ts';

const SOCKETS = 4;
const CLIENTS = Array.from({ length: 40 }, (_, n) => `127.0.${n % 5}.${10 + n}`);

/** Sockets that share a port of 127.0.0.1, steered or not. */
function group(sys: Sys, kind: 'stream' | 'datagram', steered: boolean) {
  const { sockets } = sys;
  const fds: number[] = [];
  let port = 0;
  for (let n = 0; n < SOCKETS; n += 1) {
    const fd = sockets[kind](4);
    sockets.setOption(fd, k.SOL_SOCKET, k.SO_REUSEPORT, 1);
    sockets.bind(fd, sys.sockaddr({ address: '127.0.0.1', port }));
    port = sockets.localAddress(fd)?.port ?? 0;
    if (kind === 'stream') sockets.listen(fd, 100);
    fds.push(fd);
  }
  const result = steered ? sockets.steer(fds[1] ?? -1, SOCKETS) : 0;
  return { fds, port, result };
}

/** How many sockets have something from each client, given who sent to which. */
function spread(seen: ReadonlyMap<string, ReadonlySet<number>>): number[] {
  return [...seen.values()].map(({ size }) => size);
}

for (const steered of [true, false]) {
  const says = steered ? 'stay with one socket' : 'are spread by the kernel';
  linuxTest(`connections of a client ${says}`, async (t) => {
    const sys = newSys();
    const { fds, port, result } = group(sys, 'stream', steered);
    t.equal(result, 0);
    const clients = CLIENTS.flatMap((localAddress) =>
      Array.from({ length: 6 }, () => connect({ port, host: '127.0.0.1', localAddress })),
    );
    await Promise.all(clients.map((client) => once(client, 'connect')));
    const seen = new Map<string, Set<number>>();
    const used = new Set<number>();
    for (const [index, listener] of fds.entries()) {
      for (let fd = sys.sockets.accept(listener); fd >= 0; fd = sys.sockets.accept(listener)) {
        const address = sys.sockets.remoteAddress(fd)?.address ?? '';
        seen.set(address, (seen.get(address) ?? new Set()).add(index));
        used.add(index);
        sys.sockets.close(fd);
      }
    }
    for (const client of clients) client.destroy();
    for (const fd of fds) sys.sockets.close(fd);
    t.equal(seen.size, CLIENTS.length, 'all have come');
    t.equal(used.size, SOCKETS, 'to all of the sockets');
    if (steered) t.ok(spread(seen).every((count) => count === 1));
    else
      t.ok(
        spread(seen).some((count) => count > 1),
        'which is what the other test would miss',
      );
  });
}

linuxTest('so do datagrams', async (t) => {
  const sys = newSys();
  const { fds, port, result } = group(sys, 'datagram', true);
  t.equal(result, 0);
  const slots = sys.datagramSlots(CLIENTS.length * 2);
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

linuxTest('a socket that shares nothing cannot be steered', (t) => {
  const { sockets } = newSys();
  const fd = sockets.datagram(4);
  t.ok(sockets.steer(-1, 2) < 0);
  sockets.close(fd);
});
