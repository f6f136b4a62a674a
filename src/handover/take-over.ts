import { Socket } from 'node:net';
import { messageOf } from '../errors.ts';
import {
  closeInherited,
  keepInherited,
  type PreviousListener,
} from '../proxysocket/core/inherited.ts';
import { forgetPreviousFlows, keepPreviousFlows } from '../proxysocket/udp/known-clients.ts';
import { takenText } from './protocol.ts';
import type { ReceivedSockets } from './exchange.ts';
import { fileAt, type FileId } from '../util/socket-file.ts';
import { canHandOver, runInThread } from './thread.ts';

/** The sockets and sessions of the previous process. */
export interface Inheritance {
  readonly kind: 'inherited';
  /** The file of the predecessor's socket. */
  readonly file: FileId;
  readonly pid: number;
  readonly sockets: number;
  readonly previousListeners: readonly PreviousListener[];
  /** Resolves when the predecessor has ended or no longer waits for this process. */
  readonly predecessorGone: Promise<void>;
  /** Reports to the predecessor that this process serves now; closes unused sockets and drops its data. */
  complete(): void;
}

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
  if (!canHandOver()) {
    return { kind: 'failed', reason: 'this Node or system cannot pass descriptors' };
  }
  try {
    const taken = await runInThread(path);
    // If the file has changed since, it may belong to a third process.
    return inheritance(taken, fileAt(path) === file ? file : undefined);
  } catch (error) {
    if (NOBODY.has((error as NodeJS.ErrnoException).code)) return { kind: 'nobody', file };
    return { kind: 'failed', reason: messageOf(error) };
  }
}

function inheritance(
  { pid, sockets, previousListeners, flows, connection }: ReceivedSockets,
  file: FileId,
): Inheritance {
  keepInherited(sockets, previousListeners);
  keepPreviousFlows(flows);
  // While open, it shows the predecessor that this process is alive.
  const socket = new Socket({ fd: connection, readable: true, writable: true });
  socket.on('error', () => undefined);
  const gone = Promise.withResolvers<void>();
  socket.once('close', () => gone.resolve());
  socket.unref();
  socket.resume();
  return {
    kind: 'inherited',
    file,
    pid,
    predecessorGone: gone.promise,
    sockets: sockets.length,
    previousListeners,
    complete() {
      forgetPreviousFlows();
      socket.write(takenText(closeInherited()));
    },
  };
}
