/** What a process sends a new one, also while its other threads close sockets. Both ends are in this thread. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { closeSync, fstatSync, openSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Test } from 'tap';
import { sendSockets } from '../../src/handover/exchange.ts';
import { helloFrom, readOffer } from '../../src/handover/protocol.ts';
import { Wire, MAX_DESCRIPTORS, Rights } from '../../src/handover/wire.ts';
import { Sys } from '../../src/proxysocket/linux/sys/sys.ts';
import { library, linuxTest, newSys } from '../support/linux-sys.ts';
import { shortDir } from '../support/short-dir.ts';
import { openDescriptors } from '../support/sockets.ts';

/** Calls back when it has looked at a descriptor, and before it sends some. */
class WatchedRights extends Rights {
  onLooked: (fd: number) => void = () => undefined;
  onSending: (descriptors: readonly number[]) => void = () => undefined;

  override listeningSocket(fd: number) {
    const found = super.listeningSocket(fd);
    this.onLooked(fd);
    return found;
  }

  override send(fd: number, bytes: Uint8Array, descriptors: readonly number[] = []) {
    this.onSending(descriptors);
    return super.send(fd, bytes, descriptors);
  }
}

/** The ends of a connection. */
async function connection(t: Test) {
  const path = join(shortDir(t), 'socket');
  const server = createServer({ pauseOnConnect: true }).listen(path);
  await once(server, 'listening');
  const rights = new WatchedRights(newSys());
  const called = once(server, 'connection');
  const successor = new Wire(rights, rights.connect(path));
  const [socket] = (await called) as [Socket & { readonly _handle: { readonly fd: number } }];
  t.teardown(() => {
    closeSync(successor.fd);
    socket.destroy();
    server.close();
  });
  return { rights, successor, wire: new Wire(rights, socket._handle.fd) };
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
function exchange(
  t: Test,
  { rights, successor, wire }: Ends,
  udp: readonly number[],
  ports: readonly number[] = [],
) {
  const place = { servicePort: 'd/dns:dns', protocol: 'UDP', address: '127.0.0.1' } as const;
  const listeners = udp.map((port) => {
    return { ...place, traffic: 'internal' as const, asked: port, port, key: `UDP ${port}` };
  });
  successor.say(helloFrom(4711));
  const sent = sendSockets(rights, wire, { listeners, flows: [], ports });
  const offer = readOffer(successor.readLine());
  if (!offer.ok) throw new Error(offer.reason);
  const got = successor.receiveDescriptors(offer.sockets);
  t.teardown(() => got.forEach((fd) => closeSync(fd)));
  const sockets = got.flatMap((fd) => rights.listeningSocket(fd) ?? []);
  return { sent, sockets };
}

linuxTest('descriptors arrive in order, also more than a message may have', async (t) => {
  const { rights, successor, wire } = await connection(t);
  t.equal(rights.peerUser(wire.fd), process.getuid?.());
  const files = Array.from({ length: MAX_DESCRIPTORS + 2 }, () => openSync('/dev/null', 'r'));
  const before = openDescriptors();
  wire.sendDescriptors([...files.slice(1), wire.fd]);
  const got = successor.receiveDescriptors(files.length);
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
  const { sockets } = exchange(t, ends, [udp.port, connected.address().port], [port]);
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
      ends.rights.onSending = (descriptors) => close(descriptors.includes(closing.fd));
    else ends.rights.onLooked = (fd) => close(fd === closing.fd);
    const { sent, sockets } = exchange(t, ends, [closing.port, staying.port]);
    t.match(sent, { ok: true, pid: 4711 });
    if (when === 'it is looked at') t.match(sent, { inodes: [staying.inode] });
    t.same(
      sockets.map(({ port }) => port),
      [staying.port],
    );
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
  const reader = new Rights(new Sys({ ffi, c: { ...c, recvmsg } }));
  for (const text of ['one', 'two']) {
    ends.wire.say(text);
    t.match(reader.receive(ends.successor.fd), { descriptors: [] });
  }
  t.same(rooms, [0, 0]);
});

linuxTest('an offer whose sessions are not complete is refused', async (t) => {
  const flow = { servicePort: 'd/dns:dns', client: '10.0.0.9:5000', endpoint: '10.1.0.1:53' };
  const read = (flows: unknown) =>
    readOffer(JSON.stringify({ ok: true, pid: 1, sockets: 0, former: [], flows }));
  t.match(read([flow]), { flows: [flow] });
  for (const flows of [undefined, {}, [null], [{ ...flow, client: 5000 }]])
    t.throws(() => read(flows), { code: 'KPNG_HANDOVER_FAILED' });
});
