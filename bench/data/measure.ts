/** One run: network, servers and peers, then memory, rounds, and latency at a fixed rate. */
import { messageOf } from '../../src/errors.ts';
import { machine } from '../report/machine.ts';
import { isInstalled } from '../support/tools.ts';
import { halfOfSlowest, PACED } from './fixed-rate.ts';
import { bytesOfIdleConnection } from './idle-connections.ts';
import { DATA_LOADS } from './loads/all.ts';
import type { DataLoad } from './loads/load.ts';
import { DataNetwork } from './network.ts';
import { openPeers, type OpenPeer } from './open.ts';
import { HAPROXY } from './peers/haproxy.ts';
import { direct, DNAT } from './peers/kernel.ts';
import { kubeProxy } from './peers/kube-proxy.ts';
import { NGINX } from './peers/nginx.ts';
import { ours, oursWith } from './peers/ours.ts';
import type { PeerKind } from './peers/peer.ts';
import { PORTAL_FLAGS, withWorkers, type DataPlan, type PeerWord } from './plan.ts';
import type { DataLoadResult, DataReport, Missing } from './result.ts';
import { runRounds } from './rounds.ts';
import { startServers } from './servers.ts';
import { busyShare } from './usage.ts';

/** Measures everything that is asked for. What cannot be measured is in `missing`, with the cause. */
export async function measureData(
  plan: DataPlan,
  onProgress: (text: string) => void,
): Promise<DataReport> {
  const begin = performance.now();
  const otherwise = await busyShare();
  const network = new DataNetwork(plan.congestion);
  const servers = startServers(network);
  const opened: OpenPeer[] = [];
  try {
    const { open, missing } = await openPeers(network, kindsOf(plan, network), onProgress);
    opened.push(...open);
    const notes = [...servers.notes];
    if (plan.flags.length > 0) notes.push(`ours ran with ${plan.flags.join(' ')}`);
    const idleConnection = await idleMemory(plan, network, open, missing, onProgress);
    const loads = installed(
      DATA_LOADS.filter(({ word }) => plan.loads.includes(word)),
      missing,
      notes,
    );
    const common = {
      client: (...words: readonly string[]) => network.client(...words),
      peers: open,
      rounds: plan.rounds,
      seconds: plan.seconds,
      onProgress,
    };
    const rounds = await runRounds({ ...common, loads });
    missing.push(...rounds.missing);
    const fixedRate: DataLoadResult[] = [];
    for (const load of paced(rounds.results, missing, notes)) {
      const { results, missing: failed } = await runRounds({ ...common, loads: [load] });
      fixedRate.push(...results);
      missing.push(...failed);
    }
    return {
      date: new Date().toISOString().slice(0, 10),
      machine: machine(),
      congestionControl: plan.congestion,
      rounds: plan.rounds,
      seconds: plan.seconds,
      peers: open.map(({ kind: { word, title } }) => ({ word, title })),
      loads: rounds.results,
      fixedRate,
      idleConnection,
      idleConnections: plan.idleConnections,
      missing,
      notes,
      busyBefore: otherwise,
      took: (performance.now() - begin) / 1000,
    };
  } finally {
    onProgress('cleaning up');
    for (const { peer } of opened.toReversed()) await peer.close();
    await servers.close();
    network.remove();
  }
}

function kindsOf(plan: DataPlan, network: DataNetwork): PeerKind[] {
  const portal = (word: keyof typeof PORTAL_FLAGS) => () =>
    ours('linux', [...PORTAL_FLAGS[word], ...plan.flags], { word, title: `ours, ${word}` });
  const kinds: Readonly<Record<Exclude<PeerWord, `${string}:${number}`>, () => PeerKind>> = {
    direct: () => direct(network),
    node: () => ours('node', plan.flags),
    linux: () => ours('linux', plan.flags),
    'kube-proxy': () => kubeProxy(plan.kubeProxy ?? 'kube-proxy'),
    haproxy: () => HAPROXY,
    nginx: () => NGINX,
    dnat: () => DNAT,
    transparent: portal('transparent'),
    untracked: portal('untracked'),
  };
  return plan.peers.map((word) => {
    const several = withWorkers(word);
    return several === undefined
      ? kinds[word as keyof typeof kinds]()
      : oursWith(several.workers, several.engine, plan.flags);
  });
}

/** Those loads whose tools there are, or which clients of this project can stand in for. */
function installed(loads: readonly DataLoad[], missing: Missing[], notes: string[]): DataLoad[] {
  return loads.flatMap((load) => {
    const { word, title, tool, without } = load;
    if (tool === undefined || isInstalled(tool.command)) return [load];
    const why = `not installed: ${tool.command} (package ${tool.package})`;
    if (without === undefined) {
      missing.push({ load: word, why });
      return [];
    }
    notes.push(`${title}: ${why}; measured with clients of this project, in Node`);
    return [{ ...load, run: without }];
  });
}

/** The loads at a fixed rate that follow from what was measured. */
function paced(
  results: readonly DataLoadResult[],
  missing: Missing[],
  notes: string[],
): DataLoad[] {
  return PACED.flatMap(({ after, at }) => {
    const maximum = results.find(({ word }) => word === after);
    const asked = maximum === undefined ? undefined : halfOfSlowest(maximum);
    return asked === undefined ? [] : installed([at(asked)], missing, notes);
  });
}

async function idleMemory(
  { idleConnections }: DataPlan,
  network: DataNetwork,
  peers: readonly OpenPeer[],
  missing: Missing[],
  onProgress: (text: string) => void,
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
