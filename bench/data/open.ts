/** Opens all peers, each in a node of its own. Those that cannot be opened are left out, with the cause. */
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { messageOf } from '../../src/errors.ts';
import { isInstalled } from '../support/tools.ts';
import type { DataNetwork } from './network.ts';
import type { Peer, PeerKind } from './peers/peer.ts';
import { runProgram } from './program.ts';
import type { ProbeSettings } from './probe.ts';
import type { Missing } from './result.ts';

export interface OpenPeer {
  readonly kind: Pick<PeerKind, 'word' | 'title' | 'udp'>;
  readonly peer: Peer;
}

const PROBE = join(import.meta.dirname, 'probe.ts');
/** Until a peer has to let traffic through. Milliseconds. */
const WITHIN = 20_000;

export async function openPeers(
  network: DataNetwork,
  kinds: readonly PeerKind[],
  onProgress: (text: string) => void,
): Promise<{ readonly open: OpenPeer[]; readonly missing: Missing[] }> {
  const open: OpenPeer[] = [];
  const missing: Missing[] = [];
  for (const kind of kinds) {
    onProgress(`starting ${kind.title}`);
    try {
      open.push({ kind, peer: await openPeer(network, kind) });
    } catch (error) {
      missing.push({ peer: kind.word, why: messageOf(error) });
    }
  }
  return { open, missing };
}

async function openPeer(network: DataNetwork, kind: PeerKind): Promise<Peer> {
  const { needs } = kind;
  if (needs !== undefined && !isInstalled(needs.command)) {
    throw new Error(`not installed: ${needs.command} (package ${needs.package})`);
  }
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
