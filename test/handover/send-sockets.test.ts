/** What a process sends a new one, also while its other threads close sockets. Both ends are in this thread. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { closeSync, fstatSync, openSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Test } from 'tap';
import { sendSockets } from '../../src/handover/predecessor.ts';
import { HELLO, networkNamespace, OFFER, parseMessage } from '../../src/handover/protocol.ts';
import { takeOver } from '../../src/handover/take-over.ts';
import { Wire, MAX_DESCRIPTORS } from '../../src/handover/wire.ts';
import { Sys } from '../../src/proxysocket/linux/sys/sys.ts';
import { library, linuxTest, newSys } from '../support/linux-sys.ts';
import { shortDir } from '../support/short-dir.ts';
import { openDescriptors } from '../support/sockets.ts';
import { until } from '../support/until.ts';

/** Calls back when it has looked at a descriptor, and before it sends some. */
class WatchedWire extends Wire {
  onLooked: (fd: number) => void = () => undefined;
  onSending: (descriptors: readonly number[]) => void = () => undefined;

  override listeningSocket(fd: number) {
    const found = super.listeningSocket(fd);
    this.onLooked(fd);
    return found;
  }

  override send(bytes: Uint8Array, descriptors: readonly number[] = []) {
    this.onSending(descriptors);
    return super.send(bytes, descriptors);
  }
}

/** The ends of a connection. */
async function connection(t: Test) {
  const path = join(shortDir(t), 'socket');
  const server = createServer({ pauseOnConnect: true }).listen(path);
  await once(server, 'listening');
  const called = once(server, 'connection');
  const caller = connect(path).pause();
  const [socket] = (await called) as [Socket];
  t.teardown(() => {
    caller.destroy();
    socket.destroy();
    server.close();
  });
  const [successor, wire] = [new Wire(newSys(), caller), new WatchedWire(newSys(), socket)];
  return { caller, successor, wire };
}

/** A socket that takes datagrams, for the test to close. */
function datagrams() {
  const sys = newSys();
  const fd = sys.datagram(4);
  sys.bind(fd, { address: '127.0.0.1', port: 0 });
  const port = sys.localAddress(fd)?.port ?? 0;
  return { fd, port, inode: fstatSync(fd).ino };
}

type Ends = Awaited<ReturnType<typeof connection>>;

/** What is sent for these UDP and TCP ports, and where the sockets listen that the new process gets. */
async function exchange(
  t: Test,
  { successor, wire }: Ends,
  udp: readonly number[],
  ports: readonly number[] = [],
) {
  const place = { servicePort: 'd/dns:dns', protocol: 'UDP', address: '127.0.0.1' } as const;
  const listeners = udp.map((port) => {
    return { ...place, traffic: 'internal' as const, asked: port, port, key: `UDP ${port}` };
  });
  await successor.say({ ...HELLO, pid: 4711, network: networkNamespace() });
  const sent = await sendSockets(wire, { listeners, flows: [], ports });
  const offer = parseMessage('offer', await successor.readLine(), OFFER);
  const got = await successor.receiveDescriptors(offer.sockets);
  t.teardown(() => got.forEach((fd) => closeSync(fd)));
  const sockets = got.flatMap((fd) => successor.listeningSocket(fd) ?? []);
  return { sent, sockets };
}

linuxTest('sockets that a new process sends are refused and closed', async (t) => {
  const { successor, wire } = await connection(t);
  const file = openSync('/dev/null', 'r');
  t.teardown(() => closeSync(file));
  await successor.sendDescriptors([file, file]);
  await successor.say({});
  const sending = sendSockets(wire, { listeners: [], flows: [], ports: [] });
  await t.rejects(sending, { message: 'the other process sent sockets' });
  t.same(wire.descriptors, [], 'none is kept');
});

linuxTest('descriptors arrive in order, also more than a message may have', async (t) => {
  const { successor, wire } = await connection(t);
  t.equal(wire.peerUser(), process.getuid?.());
  const files = Array.from({ length: MAX_DESCRIPTORS + 2 }, () => openSync('/dev/null', 'r'));
  const before = openDescriptors();
  await wire.sendDescriptors([...files.slice(1), wire.fd]);
  const got = await successor.receiveDescriptors(files.length);
  t.equal(openDescriptors(), before + files.length);
  t.equal(fstatSync(got.at(-1) ?? -1).ino, fstatSync(wire.fd).ino);
  for (const fd of [...files, ...got]) closeSync(fd);
});

linuxTest('sockets that accept clients at the ports are sent, and nothing else', async (t) => {
  const ends = await connection(t);
  const server = createServer((socket) => socket.resume()).listen(0, '::1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  const accepted = once(server, 'connection');
  const client = connect(port, '::1');
  await accepted;
  t.teardown(() => client.destroy());
  const [udp, connected] = [datagrams(), createSocket('udp4')];
  connected.connect(udp.port, '127.0.0.1');
  await once(connected, 'connect');
  t.teardown(() => {
    connected.close();
    closeSync(udp.fd);
  });
  const { sockets } = await exchange(t, ends, [udp.port, connected.address().port], [port]);
  t.match(
    new Set(sockets),
    new Set([
      { protocol: 'UDP', address: '127.0.0.1', port: udp.port },
      { protocol: 'TCP', address: '::1', port },
    ]),
  );
  t.equal(sockets.length, 2);
});

for (const when of ['it is looked at', 'it is sent'] as const) {
  linuxTest(`one that closes when ${when} is left out, and no other one`, async (t) => {
    const ends = await connection(t);
    const [closing, staying] = [datagrams(), datagrams()];
    t.teardown(() => closeSync(staying.fd));
    let isOpen = true;
    const close = (isIt: boolean): void => {
      if (isIt && isOpen) closeSync(closing.fd);
      isOpen &&= !isIt;
    };
    if (when === 'it is sent')
      ends.wire.onSending = (descriptors) => close(descriptors.includes(closing.fd));
    else ends.wire.onLooked = (fd) => close(fd === closing.fd);
    const { sent, sockets } = await exchange(t, ends, [closing.port, staying.port]);
    t.match(sent, { pid: 4711 });
    if (when === 'it is looked at') t.match(sent, { inodes: [staying.inode] });
    t.equal(sockets.length, 1);
    t.match(sockets, [{ port: staying.port }]);
  });
}

linuxTest('no read gives the kernel room for the name of the other socket', async (t) => {
  const { c, ffi } = library();
  const rooms: number[] = [];
  const recvmsg: typeof c.recvmsg = (fd, header, flags) => {
    rooms.push(new DataView(ffi.toArrayBuffer(header as bigint, 56, false)).getUint32(8, true));
    return c.recvmsg(fd, header, flags);
  };
  const ends = await connection(t);
  // The name of a socket that is bound, as that of the process that runs, may be longer than an IP address.
  const reader = new Wire(new Sys({ ffi, c: { ...c, recvmsg } }), ends.caller);
  for (const text of ['one', 'two']) {
    await ends.wire.say(text);
    t.type(reader.receive(), Uint8Array);
  }
  t.same(rooms, [0, 0]);
});

linuxTest('of a process that breaks the protocol nothing stays open', async (t) => {
  const path = join(shortDir(t), 'socket');
  const server = createServer({ pauseOnConnect: true }).listen(path);
  await once(server, 'listening');
  t.teardown(() => server.close());
  const before = openDescriptors();
  const called = once(server, 'connection');
  const taken = takeOver(path);
  const [socket] = (await called) as [Socket];
  const wire = new Wire(newSys(), socket);
  await wire.readLine();
  await wire.say({ ok: true, pid: 1, sockets: 1, former: [], flows: [] });
  await wire.sendDescriptors([wire.fd, wire.fd]);
  t.match(await taken, { kind: 'failed', reason: /too many sockets/ });
  socket.destroy();
  await until(() => openDescriptors() === before);
});

linuxTest('an offer whose sessions are not complete is refused', async (t) => {
  const [flow] = OFFER.flows;
  for (const flows of [undefined, {}, [null], [{ ...flow, client: 5000 }]]) {
    const line = JSON.stringify({ ...OFFER, flows });
    t.throws(() => parseMessage('offer', line, OFFER), { code: 'KPNG_HANDOVER_FAILED' });
  }
});
