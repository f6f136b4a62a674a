import { closeSync } from 'node:fs';
import { once } from 'node:events';
import { isBuiltin } from 'node:module';
import { connect, type Socket } from 'node:net';
import { messageOf } from '../errors.ts';
import { closeInherited, keepInherited } from '../util/inherited.ts';
import { openSys } from '../proxysocket/linux/sys/sys.ts';
import { forgetPreviousFlows, keepPreviousFlows } from '../proxysocket/udp/known-clients.ts';
import { fileAt } from '../util/socket-file.ts';
import {
  HELLO,
  isAllowedUser,
  networkNamespace,
  OFFER,
  parseMessage,
  REFUSAL,
} from './protocol.ts';
import { Wire } from './wire.ts';

/**
 * Takes over from the process that serves a handover socket. Its sockets are kept for the listeners of this process;
 * it keeps accepting until `complete`. If this process ends before that, nothing has changed. Never rejects. `file`: the
 * file of the predecessor's socket, or one that no process listens on.
 */
export async function takeOver(path: string) {
  const file = fileAt(path);
  if (file === undefined) return { kind: 'none' as const, file };
  const failed = (reason: string) => ({ kind: 'failed' as const, file: undefined, reason });
  if (process.platform !== 'linux' || !isBuiltin('node:ffi')) {
    return failed('this Node or system cannot pass descriptors');
  }
  let connection: Socket | undefined;
  try {
    const sys = await openSys();
    // Paused: descriptors come with the bytes, which Node must not read.
    connection = connect(path).pause();
    await once(connection, 'connect');
    connection.on('error', () => undefined);
    // If the file has changed since, it may belong to a third process.
    const received = await receiveSockets(new Wire(sys, connection), path);
    return inheritance(received, connection, fileAt(path) === file ? file : undefined);
  } catch (error) {
    connection?.destroy();
    const { code } = error as NodeJS.ErrnoException;
    const isUnserved = code === 'ENOENT' || code === 'ECONNREFUSED';
    return isUnserved ? { kind: 'none' as const, file } : failed(messageOf(error));
  }
}

/** Receives the sockets of the predecessor. If it throws, nothing is left open. */
async function receiveSockets(wire: Wire, path: string) {
  try {
    // A foreign process could make us listen on sockets of its choice and obtain our clients' data.
    if (!isAllowedUser(wire.peerUser())) throw new Error(`${path} is served by another user`);
    await wire.say({ ...HELLO, pid: process.pid, network: networkNamespace() });
    const line = await wire.readLine();
    const offer = parseMessage<typeof OFFER | typeof REFUSAL>('offer', line, OFFER, REFUSAL);
    if (!offer.ok) throw new Error(`the predecessor refuses: ${offer.reason}`);
    const received = await wire.receiveDescriptors(offer.sockets);
    const sockets = received.flatMap((fd) => {
      const socket = wire.listeningSocket(fd);
      if (socket === undefined) closeSync(fd);
      return socket ?? [];
    });
    return { ...offer, sockets };
  } catch (error) {
    for (const fd of wire.descriptors) closeSync(fd);
    throw error;
  }
}

function inheritance(
  { pid, former: previousListeners, flows, sockets }: Awaited<ReturnType<typeof receiveSockets>>,
  connection: Socket,
  file: number | undefined,
) {
  keepInherited(sockets, previousListeners);
  keepPreviousFlows(flows);
  // While open, it shows the predecessor that this process is alive.
  const gone = Promise.withResolvers<void>();
  connection.once('close', () => gone.resolve());
  connection.unref();
  connection.resume();
  return {
    kind: 'inherited' as const,
    file,
    pid,
    sockets: sockets.length,
    previousListeners,
    /** Resolves when the predecessor has ended or no longer waits for this process. */
    predecessorGone: gone.promise,
    /** Reports to the predecessor that this process serves now; closes unused sockets and drops its data. */
    complete() {
      forgetPreviousFlows();
      // Earlier releases wait for a second line.
      connection.write(`${JSON.stringify({ left: closeInherited() })}\ntaken\n`);
    },
  };
}
