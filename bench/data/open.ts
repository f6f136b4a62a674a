/** Opens all peers, each in a node of its own. Those that cannot be opened are left out, with the cause. */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { messageOf } from '../../src/errors.ts';
import type { Print } from '../support/command.ts';
import { isInstalled, lack } from '../support/tools.ts';
import type { DataLoad } from './loads/load.ts';
import { DataNetwork } from './network.ts';
import type { Peer, PeerKind } from './peers/peer.ts';
import { runProgram } from './program.ts';
import type { ProbeSettings } from './probe.ts';
import type { Missing } from './result.ts';
import { startServers } from './servers.ts';
import { busyShare } from '../support/process-usage.ts';

export interface OpenPeer {
  readonly kind: Pick<PeerKind, 'word' | 'title' | 'udp'>;
  readonly peer: Peer;
}

const PROBE = join(import.meta.dirname, 'probe.ts');
/** Until a peer has to let traffic through. Milliseconds. */
const WITHIN = 20_000;

/** Throws an Error that says what is missing. */
export function checkMachine(): void {
  const missing = ['ip', 'nft', 'sysctl'].filter((command) => !isInstalled(command));
  if (missing.length > 0) throw new Error(`not on the PATH: ${missing.join(', ')}`);
  try {
    const name = `kpngbench-${process.pid}-try`;
    execFileSync('ip', ['netns', 'add', name], { stdio: 'pipe' });
    execFileSync('ip', ['netns', 'delete', name], { stdio: 'pipe' });
  } catch (cause) {
    throw new Error('no network namespace can be made; run it as root', { cause });
  }
}

interface Rig {
  readonly network: DataNetwork;
  /** Peers that are to be closed in the end. */
  readonly opened: OpenPeer[];
  readonly notes: string[];
  /** Share of all cores that something else used before. */
  readonly busyBefore: number;
}

/** Does something in a network with its servers, and removes all of it. Rejects when that cannot be made here. */
export async function inNetwork<Result>(
  congestion: string,
  onProgress: Print,
  work: (rig: Rig) => Promise<Result>,
): Promise<Result> {
  checkMachine();
  // Each program and folder of the run is ended or removed at the latest when this process ends.
  process.setMaxListeners(200);
  const busyBefore = await busyShare();
  const network = new DataNetwork(congestion);
  const servers = startServers(network);
  const opened: OpenPeer[] = [];
  try {
    return await work({ network, opened, notes: [...servers.notes], busyBefore });
  } finally {
    onProgress('cleaning up');
    for (const { peer } of opened.toReversed()) await peer.close();
    await servers.close();
    network.remove();
  }
}

/** Adds those that can be opened, and resolves with the others. */
export async function openPeers(
  network: DataNetwork,
  kinds: readonly PeerKind[],
  opened: OpenPeer[],
  onProgress: Print,
): Promise<Missing[]> {
  const missing: Missing[] = [];
  for (const kind of kinds) {
    onProgress(`starting ${kind.title}`);
    try {
      opened.push({ kind, peer: await openPeer(network, kind) });
    } catch (error) {
      missing.push({ peer: kind.word, why: messageOf(error) });
    }
  }
  return missing;
}

/** Those loads whose tools there are, or which clients of this project can stand in for. */
export function installed(
  loads: readonly DataLoad[],
  missing: Missing[],
  notes: string[],
): DataLoad[] {
  return loads.flatMap((load) => {
    const { word, title, tool, without } = load;
    const why = lack(tool);
    if (why === undefined) return [load];
    if (without === undefined) {
      missing.push({ load: word, why });
      return [];
    }
    notes.push(`${title}: ${why}; measured with clients of this project, in Node`);
    return [{ ...load, run: without }];
  });
}

async function openPeer(network: DataNetwork, kind: PeerKind): Promise<Peer> {
  const why = lack(kind.needs);
  if (why !== undefined) throw new Error(why);
  const peer = await kind.start(network.addNode());
  const settings: ProbeSettings = { address: peer.address, udp: kind.udp, within: WITHIN };
  const probe = network.client(process.execPath, PROBE, JSON.stringify(settings));
  const over = new AbortController();
  try {
    await Promise.race([runProgram(probe, WITHIN + 10_000, over.signal), ended(peer, over.signal)]);
    return peer;
  } catch (error) {
    const why = diagnosis(peer) ?? messageOf(error);
    await peer.close();
    throw new Error(why, { cause: error });
  } finally {
    over.abort();
  }
}

/** Rejects when the peer has ended. */
async function ended(peer: Peer, signal: AbortSignal): Promise<never> {
  for (;;) {
    await wait(200, undefined, { signal });
    peer.check();
  }
}

/** What a peer that has ended said last. */
export function diagnosis(peer: Peer): string | undefined {
  try {
    peer.check();
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}
