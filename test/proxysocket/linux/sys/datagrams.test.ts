import * as k from '../../../../src/proxysocket/linux/sys/abi.ts';
import { type DatagramSlots, segmentRun } from '../../../../src/proxysocket/linux/sys/datagrams.ts';
import type { Sys } from '../../../../src/proxysocket/linux/sys/sys.ts';
import { linuxTest, newSys } from '../../../support/linux-sys.ts';

/** A bound socket, and its address. */
function bound(sys: Sys, address = '127.0.0.1') {
  const place = sys.sockaddr({ address, port: 0 });
  const fd = sys.sockets.datagram(place.family);
  if (place.family === 6) sys.sockets.setOption(fd, k.IPPROTO_IPV6, k.IPV6_V6ONLY, 1);
  sys.sockets.bind(fd, place);
  return { fd, address, port: sys.sockets.localAddress(fd)?.port ?? 0 };
}

function send(
  sys: Sys,
  fd: number,
  to: { address: string; port: number },
  ...texts: string[]
): void {
  sys.sockets.connect(fd, sys.sockaddr(to));
  for (const text of texts) {
    const memory = sys.alloc(Math.max(1, text.length));
    memory.bytes.set(Buffer.from(text));
    sys.streams.write(fd, memory, text.length);
  }
}

/** Slots with datagrams of these sizes, each filled with the number of its slot. */
function filled(sys: Sys, sizes: readonly number[]): DatagramSlots {
  const slots = sys.datagramSlots(sizes.length);
  const [from, to] = [bound(sys), bound(sys)];
  sys.sockets.connect(from.fd, sys.sockaddr(to));
  for (const [index, size] of sizes.entries()) {
    const memory = sys.alloc(Math.max(1, size));
    memory.bytes.fill(index);
    sys.streams.write(from.fd, memory, size);
    slots.receive(to.fd, index, 1);
  }
  sys.sockets.close(from.fd);
  sys.sockets.close(to.fd);
  return slots;
}

linuxTest('one call receives many datagrams of any size, and reports their senders', (t) => {
  const sys = newSys();
  const slots = sys.datagramSlots(8);
  for (const address of ['127.0.0.1', '::1']) {
    const to = bound(sys, address);
    const [one, two] = [bound(sys, address), bound(sys, address)];
    send(sys, one.fd, to, 'first', '');
    send(sys, two.fd, to, 'x'.repeat(60_000));
    t.equal(slots.receive(to.fd, 2, 6), 3);
    t.same(
      [2, 3, 4].map((slot) => slots.length(slot)),
      [5, 0, 60_000],
    );
    t.same(slots.senderAddress(2), { address, port: one.port });
    t.same(slots.senderAddress(4), { address, port: two.port });
    t.equal(slots.sender(2), slots.sender(3));
    t.not(slots.sender(2), slots.sender(4));
    t.equal(slots.isCut(4), false);
    t.equal(slots.destination(4), undefined, 'no one has asked for it');
    t.equal(slots.receive(to.fd, 0, 8), -k.EAGAIN);
    send(sys, two.fd, to, 'again');
    t.equal(slots.receive(to.fd, 2, 1), 1);
    t.equal(slots.sender(2), slots.sender(4), 'a key is the same every time');
    for (const { fd } of [to, one, two]) sys.sockets.close(fd);
  }
});

linuxTest('a wildcard socket reports the destination address, and answers from it', (t) => {
  const sys = newSys();
  const slots = sys.datagramSlots(8);
  const list = sys.sendList(8);
  const names = sys.peerNames();
  const any = bound(sys, '0.0.0.0');
  sys.sockets.setOption(any.fd, k.IPPROTO_IP, k.IP_PKTINFO, 1);
  const asked = ['127.0.0.1', '127.0.0.2', '127.9.9.9'];
  const clients = asked.map((address) => {
    const { fd } = bound(sys);
    // A connected socket hears no one else.
    send(sys, fd, { address, port: any.port }, 'who?');
    return fd;
  });
  t.equal(slots.receive(any.fd, 0, 8), 3);
  t.equal(new Set([0, 1, 2].map((slot) => slots.destination(slot))).size, 3);
  const indexes = [0, 1, 2];
  for (const slot of indexes) {
    const name = names.acquire(slots.names, slots.nameOffset(slot));
    list.add(slots, indexes, slot, 1, { name, nameLength: 16, source: slots.answerControl(slot) });
  }
  t.equal(list.send(any.fd, 0), 3);
  const memory = sys.alloc(16);
  for (const fd of clients) {
    t.equal(sys.streams.read(fd, memory, 16), 4);
    sys.sockets.close(fd);
  }
  sys.sockets.close(any.fd);
});

linuxTest('the same with IPv6', (t) => {
  const sys = newSys();
  const slots = sys.datagramSlots(2);
  const list = sys.sendList(2);
  const names = sys.peerNames();
  const any = bound(sys, '::');
  sys.sockets.setOption(any.fd, k.IPPROTO_IPV6, k.IPV6_RECVPKTINFO, 1);
  const client = bound(sys, '::1');
  send(sys, client.fd, { address: '::1', port: any.port }, 'who?');
  t.equal(slots.receive(any.fd, 0, 2), 1);
  t.type(slots.destination(0), 'string');
  const name = names.acquire(slots.names, slots.nameOffset(0));
  list.add(slots, [0], 0, 1, { name, nameLength: 28, source: slots.answerControl(0) });
  t.equal(list.send(any.fd, 0), 1);
  t.equal(sys.streams.read(client.fd, sys.alloc(16), 16), 4);
  sys.sockets.close(any.fd);
  sys.sockets.close(client.fd);
});

linuxTest('datagrams of one size go as one message and arrive as they were', (t) => {
  const sys = newSys();
  t.equal(sys.hasUdpSegments, true, 'on any kernel since 4.18');
  const sizes = [1000, 1000, 1000, 400];
  const slots = filled(sys, sizes);
  const [from, to] = [bound(sys), bound(sys)];
  sys.sockets.connect(from.fd, sys.sockaddr(to));
  const list = sys.sendList(8);
  list.add(slots, [3, 0, 1, 2, 3], 1, 4, undefined);
  list.add(slots, [3], 0, 1, undefined);
  t.equal(list.messages, 2);
  t.equal(list.send(from.fd, 0), 2);
  const got = sys.datagramSlots(8);
  t.equal(got.receive(to.fd, 0, 8), 5);
  t.same(
    [0, 1, 2, 3, 4].map((slot) => got.length(slot)),
    [...sizes, 400],
  );
  const memory = sys.alloc(1000);
  list.clear();
  list.add(slots, [2], 0, 1, undefined);
  list.send(from.fd, 0);
  sys.streams.read(to.fd, memory, 1000);
  t.equal(memory.bytes[999], 2);
  sys.sockets.close(from.fd);
  sys.sockets.close(to.fd);
});

linuxTest('a list stops at the message that fails, and continues behind it', (t) => {
  const sys = newSys();
  const slots = filled(sys, [10, 10, 10]);
  const [from, to] = [bound(sys), bound(sys)];
  sys.sockets.connect(from.fd, sys.sockaddr(to));
  const list = sys.sendList(4);
  const v6 = sys.alloc(32);
  v6.view.setUint16(0, k.AF_INET6, true);
  const strange = { name: sys.peerNames().acquire(v6, 0), nameLength: 28, source: undefined };
  list.add(slots, [0, 1, 2], 0, 1, undefined);
  list.add(slots, [0, 1, 2], 1, 1, strange);
  list.add(slots, [0, 1, 2], 2, 1, undefined);
  t.equal(list.send(from.fd, 0), 1);
  t.ok(list.send(from.fd, 1) < 0, 'an address of another family');
  t.equal(list.send(from.fd, 2), 1);
  t.equal(sys.datagramSlots(4).receive(to.fd, 0, 4), 2);
  sys.sockets.close(from.fd);
  sys.sockets.close(to.fd);
});

linuxTest('which datagrams can go as one message', (t) => {
  const sys = newSys();
  const run = (sizes: number[], from = 0): number =>
    segmentRun(filled(sys, sizes), [...sizes.keys()], from, sizes.length);
  t.equal(run([100, 100, 100]), 3);
  t.equal(run([100, 100, 40, 100]), 3, 'only the last may be smaller');
  t.equal(run([100, 101]), 1);
  t.equal(run([100, 0, 100]), 1, 'one of no size is none');
  t.equal(run([0, 0]), 1);
  t.equal(run([5, 7, 7, 7], 1), 3);
  t.equal(run([30_000, 30_000, 30_000]), 2, 'there is a limit to all of it');
  t.equal(run(Array.from({ length: 70 }, () => 10)), 64, 'and to their number');
});

linuxTest('receives a few datagrams at a time, into any free slots', (t) => {
  const sys = newSys();
  const slots = sys.datagramSlots(2);
  const [from, to] = [bound(sys), bound(sys)];
  send(sys, from.fd, to, 'one', '');
  t.equal(slots.receive(to.fd, 1, 1), 1);
  t.equal(slots.length(1), 3);
  t.same(slots.senderAddress(1).port, from.port);
  t.equal(slots.receive(to.fd, 0, 2), 1);
  t.equal(slots.length(0), 0, 'a datagram, not the end of anything');
  t.same(slots.senderAddress(0).port, from.port);
  t.equal(slots.receive(to.fd, 0, 2), -k.EAGAIN);
  send(sys, from.fd, to, 'two', '');
  t.equal(slots.receive(to.fd, 0, 2), 2);
  t.same([slots.length(0), slots.length(1)], [3, 0]);
  t.same([slots.senderAddress(0).port, slots.senderAddress(1).port], [from.port, from.port]);
  sys.sockets.connect(to.fd, sys.sockaddr(from));
  t.equal(slots.write(to.fd, 0), 3);
  t.equal(slots.receive(from.fd, 0, 1), 1);
  t.equal(slots.length(0), 3);
  sys.sockets.close(to.fd);
  slots.write(from.fd, 0);
  t.equal(slots.write(from.fd, 0), -k.ECONNREFUSED, 'an ICMP message comes with a later call');
  sys.sockets.close(from.fd);
});

linuxTest('a connected socket gives its datagrams one by one, also empty and large ones', (t) => {
  const sys = newSys();
  const slots = sys.datagramSlots(3);
  const [from, to] = [bound(sys), bound(sys)];
  sys.sockets.connect(to.fd, sys.sockaddr(from));
  send(sys, from.fd, to, 'x'.repeat(65_507), '', 'three');
  t.same([slots.read(to.fd, 2), slots.length(2)], [1, 65_507]);
  t.same([slots.read(to.fd, 0), slots.length(0)], [1, 0], 'a datagram, not the end of anything');
  t.equal(slots.receive(to.fd, 1, 1), 1, 'what is left can be taken the other way');
  t.equal(slots.length(1), 5);
  t.same(slots.senderAddress(1).port, from.port);
  t.equal(slots.read(to.fd, 0), -k.EAGAIN);
  sys.sockets.close(from.fd);
  t.equal(slots.write(to.fd, 1), 5);
  t.equal(slots.read(to.fd, 0), -k.ECONNREFUSED);
  sys.sockets.close(to.fd);
});
