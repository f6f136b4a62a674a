import { closeSync } from 'node:fs';
import { once } from 'node:events';
import { isBuiltin } from 'node:module';
import { connect, type Socket } from 'node:net';
import { messageOf } from '../errors.ts';
import {
  closeInherited,
  keepInherited,
  type InheritedSocket,
} from '../proxysocket/core/inherited.ts';
import { forgetPreviousFlows, keepPreviousFlows } from '../proxysocket/udp/known-clients.ts';
import { helloFrom, isAllowedUser, type Offer, readOffer, takenText } from './protocol.ts';
import { fileAt, type FileId } from '../util/socket-file.ts';
import { openSys } from '../proxysocket/linux/sys/sys.ts';
import { Wire } from './wire.ts';

/** The sockets and sessions of the previous process. */
export type Inheritance = ReturnType<typeof inheritance>;

/** Whether there was a process to take over from. `failed`: yes, but taking over failed. */
export type TakeOver =
  | Inheritance
  /** `file`: a socket that no one listens on. */
  | { readonly kind: 'nobody'; readonly file: FileId }
  | { readonly kind: 'failed'; readonly reason: string };

/** No process listens at the path, or ever did. */
const NOBODY: ReadonlySet<string | undefined> = new Set(['ENOENT', 'ECONNREFUSED']);

/**
 * Takes over from the process that serves a handover socket. Its sockets are kept for the listeners of this process;
 * it keeps accepting until `complete`. If this process ends before that, nothing has changed. Never rejects.
 */
export async function takeOver(path: string): Promise<TakeOver> {
  const file = fileAt(path);
  if (file === undefined) return { kind: 'nobody', file };
  if (process.platform !== 'linux' || !isBuiltin('node:ffi')) {
    return { kind: 'failed', reason: 'this Node or system cannot pass descriptors' };
  }
  let connection: Socket | undefined;
  try {
    const sys = await openSys();
    // Paused: descriptors come with the bytes, which Node must not read.
    connection = connect(path).pause();
    await once(connection, 'connect');
    connection.on('error', () => undefined);
    const [offer, sockets] = await receiveSockets(new Wire(sys, connection), path);
    // If the file has changed since, it may belong to a third process.
    const found = fileAt(path) === file ? file : undefined;
    return inheritance(offer, sockets, connection, found);
  } catch (error) {
    connection?.destroy();
    if (NOBODY.has((error as NodeJS.ErrnoException).code)) return { kind: 'nobody', file };
    return { kind: 'failed', reason: messageOf(error) };
  }
}

type Accepted = Extract<Offer, { readonly ok: true }>;

/** Receives the sockets of the predecessor. If it throws, nothing is left open. */
async function receiveSockets(wire: Wire, path: string): Promise<[Accepted, InheritedSocket[]]> {
  try {
    // A foreign process could make us listen on sockets of its choice and obtain our clients' data.
    if (!isAllowedUser(wire.peerUser())) {
      throw new Error(`${path} is served by another user`);
    }
    await wire.say(helloFrom());
    const offer = readOffer(await wire.readLine());
    if (!offer.ok) throw new Error(`the predecessor refuses: ${offer.reason}`);
    const received = await wire.receiveDescriptors(offer.sockets);
    const sockets = received.flatMap((fd) => {
      const socket = wire.listeningSocket(fd);
      if (socket === undefined) closeSync(fd);
      return socket ?? [];
    });
    return [offer, sockets];
  } catch (error) {
    for (const fd of wire.descriptors) closeSync(fd);
    throw error;
  }
}

function inheritance(
  { pid, former: previousListeners, flows }: Accepted,
  sockets: readonly InheritedSocket[],
  connection: Socket,
  file: FileId,
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
    /** The file of the predecessor's socket. */
    file,
    pid,
    sockets: sockets.length,
    previousListeners,
    /** Resolves when the predecessor has ended or no longer waits for this process. */
    predecessorGone: gone.promise,
    /** Reports to the predecessor that this process serves now; closes unused sockets and drops its data. */
    complete() {
      forgetPreviousFlows();
      connection.write(takenText(closeInherited()));
    },
  };
}
