import { readdirSync } from 'node:fs';
import type { FormerListener } from '../proxysocket/inherited.ts';
import type { Rights } from '../proxysocket/linux/sys/rights.ts';
import { mayTakePart, refusal, type Hello, type Offer } from './protocol.ts';
import type { Wire } from './wire.ts';

export interface GiveOptions {
  readonly listeners: readonly FormerListener[];
  readonly pid: number;
  readonly uid: number;
  readonly network: string;
}

/** What became of a successor's call. */
export type Given =
  | { readonly ok: true; readonly pid: number; readonly sockets: number }
  | { readonly ok: false; readonly reason: string };

/**
 * Answers a successor: sends it the sockets that take clients for the listeners. Sends nothing, and says why,
 * to whoever may not have them or cannot use them.
 */
export function give(rights: Rights, wire: Wire, options: GiveOptions): Given {
  const { listeners, pid, uid, network } = options;
  const refuse = (reason: string): Given => {
    wire.say({ ok: false, reason } satisfies Offer);
    return { ok: false, reason };
  };
  const peer = rights.peer(wire.fd);
  if (peer === undefined || !mayTakePart(peer.uid, uid)) return refuse('it is of another user');
  const hello = wire.hear() as Hello;
  const problem = refusal(hello, network);
  if (problem !== undefined) return refuse(problem);
  const descriptors = listeningDescriptors(rights, listeners);
  wire.say({
    ok: true,
    pid,
    sockets: descriptors.length,
    former: listeners,
  } satisfies Offer);
  wire.sendDescriptors(descriptors);
  return { ok: true, pid: hello.pid, sockets: descriptors.length };
}

/**
 * The descriptors of this process that listen on the ports of the listeners; whichever thread has opened
 * them. One that is closed and used anew before it is sent does no harm: the successor looks what it got.
 */
function listeningDescriptors(rights: Rights, listeners: readonly FormerListener[]): number[] {
  const ports = new Set(listeners.map(({ protocol, port }) => `${protocol} ${port}`));
  return readdirSync('/proc/self/fd')
    .map(Number)
    .filter((fd) => {
      const place = rights.listeningPlace(fd);
      return place !== undefined && ports.has(`${place.protocol} ${place.port}`);
    });
}
