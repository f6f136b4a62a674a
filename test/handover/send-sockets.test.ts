/** What a process gives while other threads of it close sockets. Both ends of the wire are in this thread. */
import { once } from 'node:events';
import { closeSync, fstatSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Test } from 'tap';
import { sendSockets } from '../../src/handover/send-sockets.ts';
import { helloFrom, readOffer } from '../../src/handover/protocol.ts';
import { Wire } from '../../src/handover/wire.ts';
import { Rights } from '../../src/handover/rights.ts';
import { library, linuxTest, newSys } from '../support/linux-sys.ts';
import { shortDir } from '../support/short-dir.ts';

/** Calls back when it has looked at a descriptor, and before it sends some. */
class WatchedRights extends Rights {
  onLooked: (fd: number) => void = () => undefined;
  onSending: (descriptors: readonly number[]) => void = () => undefined;

  override listeningAddress(fd: number) {
    const place = super.listeningAddress(fd);
    this.onLooked(fd);
    return place;
  }

  override send(fd: number, bytes: Uint8Array, descriptors: readonly number[] = []) {
    this.onSending(descriptors);
    return super.send(fd, bytes, descriptors);
  }
}

/** The ends of a connection, whose new process has identified itself. */
async function connection(t: Test) {
  const path = join(shortDir(t), 'socket');
  const server = createServer({ pauseOnConnect: true }).listen(path);
  await once(server, 'listening');
  const rights = new Rights(library());
  const called = once(server, 'connection');
  const successor = new Wire(rights, rights.connect(path));
  const [socket] = (await called) as [Socket & { readonly _handle: { readonly fd: number } }];
  t.teardown(() => {
    closeSync(successor.fd);
    socket.destroy();
    server.close();
  });
  successor.say(helloFrom(4711));
  return { rights, successor, fd: socket._handle.fd };
}

/** A socket that takes datagrams, for the test to close. */
function datagrams() {
  const sys = newSys();
  const fd = sys.sockets.datagram(4);
  sys.sockets.bind(fd, { address: '127.0.0.1', port: 0 });
  const port = sys.sockets.localAddress(fd)?.port ?? 0;
  return { fd, port, inode: fstatSync(fd).ino };
}

function giveAll(rights: Rights, fd: number, ports: readonly number[]) {
  return sendSockets(rights, new Wire(rights, fd), {
    listeners: ports.map((port) => ({
      servicePort: 'd/dns:dns',
      protocol: 'UDP',
      address: '127.0.0.1',
      traffic: 'internal',
      asked: port,
      port,
      key: `UDP 127.0.0.1 ${port}`,
    })),
    flows: [],
    ports: [],
  });
}

/** The ports of what the new process gets and can use. */
function portsOf(t: Test, rights: Rights, successor: Wire): number[] {
  const offer = readOffer(successor.readLine());
  if (!offer.ok) throw new Error(offer.reason);
  const got = successor.receiveDescriptors(offer.sockets);
  t.teardown(() => got.forEach((fd) => closeSync(fd)));
  return got.flatMap((fd) => rights.listeningAddress(fd)?.port ?? []);
}

linuxTest('a socket that closes meanwhile is left out, and no other one', async (t) => {
  const { rights, successor, fd } = await connection(t);
  const [closing, staying] = [datagrams(), datagrams()];
  t.teardown(() => closeSync(staying.fd));
  const own = new WatchedRights(library());
  own.onLooked = (looked) => {
    if (looked === closing.fd) closeSync(looked);
  };
  const given = giveAll(own, fd, [closing.port, staying.port]);
  t.same(given, { ok: true, pid: 4711, inodes: [staying.inode] });
  t.same(portsOf(t, rights, successor), [staying.port]);
});

linuxTest('a socket that closes before it is sent does not keep back the others', async (t) => {
  const { rights, successor, fd } = await connection(t);
  const [closing, staying] = [datagrams(), datagrams()];
  t.teardown(() => closeSync(staying.fd));
  const own = new WatchedRights(library());
  let isOpen = true;
  own.onSending = (descriptors) => {
    if (isOpen && descriptors.includes(closing.fd)) closeSync(closing.fd);
    isOpen &&= !descriptors.includes(closing.fd);
  };
  t.match(giveAll(own, fd, [closing.port, staying.port]), { ok: true, pid: 4711 });
  t.same(portsOf(t, rights, successor), [staying.port]);
});

linuxTest('an offer whose sessions are not complete is refused', async (t) => {
  const flow = { servicePort: 'd/dns:dns', client: '10.0.0.9:5000', endpoint: '10.1.0.1:53' };
  const read = (flows: unknown) =>
    readOffer(JSON.stringify({ ok: true, pid: 1, sockets: 0, former: [], flows }));
  t.match(read([flow]), { flows: [flow] });
  for (const flows of [undefined, {}, [null], [{ ...flow, client: 5000 }]])
    t.throws(() => read(flows), { code: 'KPNG_HANDOVER_FAILED' });
});
