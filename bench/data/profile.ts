/** Where the CPU goes of those who missed a target, and of those they are compared with: perf, if it is there. */
import { join } from 'node:path';
import { tempFolder } from '../../examples/support/temp-folder.ts';
import { messageOf } from '../../src/errors.ts';
import { isInstalled } from '../support/tools.ts';
import type { DataLoad } from './loads/load.ts';
import type { OpenPeer } from './open.ts';
import { runProgram } from './program.ts';
import { verdicts } from './report/targets.ts';
import type { DataReport, Missing, Profile } from './result.ts';
import { runRounds, type RoundsPlan } from './rounds.ts';

/** Samples a second: no multiple of what the kernel's own clock does. */
const FREQUENCY = 997;

/** By the library or program that a function is in, then by its name. The first that fits counts. */
const GROUPS: readonly (readonly [name: string, where: RegExp, what: RegExp])[] = [
  ['packet rules and tracking', /kernel/, /^_*(?:nf_|nft|ipt_|hash_conn|ct_)|conntrack|_nat_/],
  ['copying', /kernel/, /copy|movs|memcpy|clear_page/],
  ['TCP, UDP and IP', /kernel/, /tcp|udp|^_*ip_|inet|bbr|cubic|fib_|dst_|neigh|sock_|^_*sk_/],
  [
    'packets and wires',
    /kernel/,
    /skb|veth|napi|netif|^_*dev_|net_rx|qdisc|gro|gso|kmem|slab|free|alloc|page/,
  ],
  [
    'waiting and waking',
    /kernel/,
    /sched|wak|switch|futex|poll|^_*ep_|spin|rcu|clock|tsc|timer|queue|pick_/,
  ],
  ['system calls', /kernel/, /syscall|entry|exit|thunk|return/],
  ['other kernel', /kernel|^\[/, /^\[k\]/],
  ['garbage collection', /^node/, /Heap|Scaveng|Mark|Sweep|Evacuat/],
  ['libuv', /^node/, /^uv_/],
  ['Node and V8', /^node/, /^/],
  ['C library', /^(?:libc|libpthread|ld-|\[vdso)/, /^/],
  ['JavaScript', /jit|perf-|^\/\/anon/i, /^/],
  ['program', /^/, /^/],
];

/** The groups that are no work of the kernel. */
export const PROGRAM_GROUPS: ReadonlySet<string> = new Set(
  GROUPS.filter(([, where]) => !where.source.includes('kernel')).map(([name]) => name),
);

/** Shares of the samples, largest first, from what perf report prints: `percent|where|[k] what`. */
export function groupProfile(report: string): Record<string, number> {
  const shares = new Map<string, number>();
  for (const line of report.split('\n')) {
    const [percent, where = '', symbol = ''] = line.split('|').map((cell) => cell.trim());
    const share = Number.parseFloat(percent ?? '');
    if (!(share > 0)) continue;
    const name = symbol.replace(/^\[.\] /, '');
    const found = GROUPS.find(
      ([, place, what]) => place.test(where) && (what.test(name) || what.test(symbol)),
    );
    const group = found?.[0] ?? 'program';
    shares.set(group, (shares.get(group) ?? 0) + share / 100);
  }
  return Object.fromEntries([...shares].toSorted(([, a], [, b]) => b - a));
}

/** Pairs of load and peer to look at: those of missed targets of CPU. */
export function toProfile(report: Pick<DataReport, 'loads' | 'fixedRate'>): [string, string][] {
  const words = new Set<string>();
  for (const { what, met, load, engine, against } of verdicts(report)) {
    if (what !== 'CPU' || met) continue;
    words.add(`${load} ${engine}`).add(`${load} ${against}`);
  }
  return [...words].map((pair) => pair.split(' ') as [string, string]);
}

/** Runs the loads of missed targets once more, with perf beside them. Nothing of that is in other figures. */
export async function profileMissed(
  report: Pick<DataReport, 'loads' | 'fixedRate'>,
  plan: Omit<RoundsPlan, 'rounds' | 'loads'>,
  loads: readonly DataLoad[],
  missing: Missing[],
): Promise<Profile[]> {
  const pairs = toProfile(report);
  if (pairs.length === 0) return [];
  if (!isInstalled('perf')) {
    missing.push({ load: 'profiles', why: 'not installed: perf (package linux-perf)' });
    return [];
  }
  const profiles: Profile[] = [];
  for (const [word, peer] of pairs) {
    const load = loads.find((each) => each.word === word);
    const open = plan.peers.find(({ kind }) => kind.word === peer);
    if (load === undefined || open === undefined) continue;
    plan.onProgress(`profile: ${load.title}, ${open.kind.title}`);
    try {
      profiles.push({ load: word, peer, shares: await profile(plan, load, open) });
    } catch (error) {
      missing.push({ peer, load: 'profiles', why: messageOf(error) });
    }
  }
  return profiles;
}

async function profile(
  plan: Omit<RoundsPlan, 'rounds' | 'loads'>,
  load: DataLoad,
  open: OpenPeer,
): Promise<Record<string, number>> {
  const folder = tempFolder('bench-perf');
  const file = join(folder.path, 'perf.data');
  const pids = open.peer.pids().join(',');
  const within = (plan.seconds + 20) * 1000;
  try {
    const what = ['-q', '-e', 'cpu-clock', '-F', String(FREQUENCY), '-p', pids, '-o', file];
    const [recorded] = await Promise.all([
      runProgram(['perf', 'record', ...what, '--', 'sleep', String(plan.seconds)], within),
      runRounds({ ...plan, peers: [open], loads: [load], rounds: 1 }),
    ]);
    const columns = ['--no-children', '-g', 'none', '--sort', 'dso,symbol', '-t', '|'];
    const text = await runProgram(['perf', 'report', '-i', file, '--stdio', ...columns], within);
    const shares = groupProfile(text);
    if (Object.keys(shares).length > 0) return shares;
    throw new Error(`perf has no samples: ${recorded}`);
  } finally {
    folder.remove();
  }
}
