/** Memory of each proxy for idle connections. */
import { startScript } from '../support/dialogue.ts';
import { HOLDER, type HoldRequest } from '../support/holder.ts';
import { memory, settled } from '../support/process-usage.ts';
import type { DataNetwork } from './network.ts';
import type { OpenPeer } from './open.ts';
import { PORTS } from './ports.ts';

/** Connections before those that count. */
const WARM_UP = 100;

/** Resident bytes of all processes of a peer, without the files of programs. */
function residentOf({ peer }: OpenPeer): number {
  return peer.pids().reduce((sum, pid) => sum + (memory(pid)?.anonymous ?? 0), 0);
}

/** Bytes for each of so many connections. Each is used once, so that whatever it needs is there. */
export async function bytesOfIdleConnection(
  network: DataNetwork,
  open: OpenPeer,
  connections: number,
): Promise<number> {
  const holder = startScript(HOLDER, {}, network.client());
  const host = open.peer.address;
  const text = `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
  const hold = (count: number): Promise<number> =>
    holder.ask({ protocol: 'TCP', host, port: PORTS.http, count, text } satisfies HoldRequest);
  try {
    // So that code is loaded and pools are filled.
    await hold(WARM_UP);
    const before = await settled(() => residentOf(open));
    const opened = await hold(connections);
    return ((await settled(() => residentOf(open))) - before) / opened;
  } finally {
    await holder.kill();
  }
}
