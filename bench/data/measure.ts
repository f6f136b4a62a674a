/** One run: network, servers and peers, then memory, rounds, and latency at a fixed rate. */
import { messageOf } from '../../src/errors.ts';
import type { Print } from '../support/command.ts';
import { bytesOfIdleConnection } from './idle-connections.ts';
import { DATA_LOADS, halfOfSlowest, PACED } from './loads/all.ts';
import type { DataLoad } from './loads/load.ts';
import type { DataNetwork } from './network.ts';
import { inNetwork, installed, openPeers, type OpenPeer } from './open.ts';
import { kubeProxy } from './peers/kube-proxy.ts';
import { direct, DNAT, HAPROXY, NGINX } from './peers/others.ts';
import { ours } from './peers/ours.ts';
import type { PeerKind } from './peers/peer.ts';
import { PORTAL_FLAGS, type DataPlan, type PeerWord } from './plan.ts';
import type { DataLoadResult, DataReport, Missing } from './result.ts';
import { runRounds } from './rounds.ts';

/** Measures everything that is asked for. What cannot be measured is in `missing`, with the cause. */
export async function measureData(plan: DataPlan, onProgress: Print): Promise<DataReport> {
  const begin = performance.now();
  return inNetwork(plan.congestion, onProgress, async ({ network, opened, notes, busyBefore }) => {
    const missing = await openPeers(network, kindsOf(plan, network), opened, onProgress);
    if (plan.flags.length > 0) notes.push(`ours ran with ${plan.flags.join(' ')}`);
    const idleConnection = await idleMemory(plan, network, opened, missing, onProgress);
    const rounds = async (loads: readonly DataLoad[]): Promise<DataLoadResult[]> => {
      const found = await runRounds({
        client: (...words) => network.client(...words),
        peers: opened,
        loads: installed(loads, missing, notes),
        rounds: plan.rounds,
        seconds: plan.seconds,
        onProgress,
      });
      missing.push(...found.missing);
      return found.results;
    };
    const loads = await rounds(DATA_LOADS.filter(({ word }) => plan.loads.includes(word)));
    const fixedRate: DataLoadResult[] = [];
    // The loads at a fixed rate that follow from what was measured.
    for (const { after, at } of PACED) {
      const maximum = loads.find(({ word }) => word === after);
      const asked = maximum === undefined ? undefined : halfOfSlowest(maximum);
      if (asked !== undefined) fixedRate.push(...(await rounds([at(asked)])));
    }
    return {
      peers: opened.map(({ kind: { word, title } }) => ({ word, title })),
      loads,
      fixedRate,
      idleConnection,
      missing,
      notes,
      busyBefore,
      took: (performance.now() - begin) / 1000,
    };
  });
}

function kindsOf(plan: DataPlan, network: DataNetwork): PeerKind[] {
  const portal = (word: keyof typeof PORTAL_FLAGS): PeerKind =>
    ours('linux', [...PORTAL_FLAGS[word], ...plan.flags], { word, title: `ours, ${word}` });
  const kinds: Readonly<Record<PeerWord, () => PeerKind>> = {
    direct: () => direct(network),
    node: () => ours('node', plan.flags),
    linux: () => ours('linux', plan.flags),
    'kube-proxy': () => kubeProxy(plan.kubeProxy ?? 'kube-proxy'),
    haproxy: () => HAPROXY,
    nginx: () => NGINX,
    dnat: () => DNAT,
    transparent: () => portal('transparent'),
    untracked: () => portal('untracked'),
  };
  return plan.peers.map((word) => kinds[word]());
}

async function idleMemory(
  { idleConnections }: DataPlan,
  network: DataNetwork,
  peers: readonly OpenPeer[],
  missing: Missing[],
  onProgress: Print,
): Promise<Record<string, number>> {
  const found: Record<string, number> = {};
  if (idleConnections === 0) return found;
  for (const open of peers) {
    const { kind, peer } = open;
    if (peer.pids().length === 0) continue;
    onProgress(`${idleConnections} idle connections, ${kind.title}`);
    try {
      found[kind.word] = await bytesOfIdleConnection(network, open, idleConnections);
    } catch (error) {
      missing.push({ peer: kind.word, load: 'idle connections', why: messageOf(error) });
    }
  }
  return found;
}
