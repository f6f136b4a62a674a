/** Memory of each proxy for connections that nobody uses. */
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { Dialogue } from '../support/dialogue.ts';
import { memory } from '../support/process-usage.ts';
import type { HoldRequest } from './hold.ts';
import type { DataNetwork } from './network.ts';
import type { OpenPeer } from './open.ts';

/** Connections before those that count. */
const WARM_UP = 100;

const HOLD = join(import.meta.dirname, 'hold.ts');

/** Resident bytes of all processes of a peer, without the files of programs. */
function residentOf({ peer }: OpenPeer): number {
  return peer.pids().reduce((sum, pid) => sum + (memory(pid)?.anonymous ?? 0), 0);
}

/** Looks until it has stayed the same within 0.5 % for half a second, for at most four seconds. */
async function settled(open: OpenPeer): Promise<number> {
  let last = residentOf(open);
  for (let quiet = 0, looks = 0; quiet < 2 && looks < 16; looks += 1) {
    await wait(250);
    const now = residentOf(open);
    quiet = Math.abs(now - last) < last / 200 ? quiet + 1 : 0;
    last = now;
  }
  return last;
}

/** Bytes for each of so many connections. Each is used once, so that whatever it needs is there. */
export async function bytesOfIdleConnection(
  network: DataNetwork,
  open: OpenPeer,
  connections: number,
): Promise<number> {
  const holder = new Dialogue(network.client(process.execPath, HOLD));
  const ask = (request: HoldRequest): Promise<number> => holder.ask<number>(request);
  try {
    // So that code is loaded and pools are filled.
    await ask({ address: open.peer.address, connections: WARM_UP });
    const before = await settled(open);
    const opened = await ask({ address: open.peer.address, connections });
    return ((await settled(open)) - before) / opened;
  } finally {
    await holder.kill();
  }
}
