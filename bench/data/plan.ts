/** What the command line of `npm run bench -- data` asks for. */
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { count, readFlags, type Output } from '../support/command.ts';
import { DATA_LOADS } from './loads/all.ts';

const PEER_WORDS = ['direct', 'node', 'linux', 'kube-proxy', 'haproxy', 'nginx', 'dnat'] as const;
/** Ours with another portal than nftables; only where asked for. */
export const PORTAL_FLAGS = {
  transparent: ['--portal=transparent'],
  untracked: ['--portal=transparent', '--portal-notrack'],
} as const;
export type PeerWord = (typeof PEER_WORDS)[number] | keyof typeof PORTAL_FLAGS;

export const ROOT = join(import.meta.dirname, '../..');

export const DATA_USAGE = `npm run bench -- data [flags]   measures traffic beside other proxies; needs root, ip and nft

  --peer kube-proxy=PATH a kube-proxy that has the userspace mode, to be measured beside
  --peers LIST           only these: ${PEER_WORDS.join(', ')};
                         transparent or untracked is the linux engine with that portal, and with --portal-notrack
  --only LIST            only loads whose name has one of these: ${DATA_LOADS.map(({ word }) => word).join(', ')}
  --rounds N             rounds, of which the medians count (3)
  --seconds N            whole seconds of each measurement (2)
  --idle N               idle connections that memory is measured with, 0: none (1000)
  --flags TEXT           further flags of our proxies, such as --flags=--workers=2
  --congestion NAME      how TCP decides what to send when, on all sides (reno, which namespaces may always have, and
                         which, as Linux's usual cubic, does not pace); bulk loads are run again with what the
                         machine has, if that is another
  --quick                1 round of 1 second, 500 idle connections
  --json FILE            where the figures go (bench/results/data.json)
  --write-docs           writes docs/benchmarks/data.json, the tables of docs/benchmarks.md and its plots

With all peers it takes about 15 minutes, and 3 with --quick. Debian packages of the other proxies and the loads:
wrk iperf3 sockperf haproxy nginx libnginx-mod-stream. What is missing is
left out or done by clients of this project, and reported.`;

export interface DataPlan extends Output {
  readonly peers: readonly PeerWord[];
  readonly kubeProxy: string | undefined;
  /** Names of the loads. */
  readonly loads: readonly string[];
  /** Further flags of our proxies. */
  readonly flags: readonly string[];
  /** The kernel's name of the congestion control of all TCP connections. */
  readonly congestion: string;
  readonly rounds: number;
  readonly seconds: number;
  readonly idleConnections: number;
}

/** Throws a TypeError that says what is wrong with the flags. */
export function readDataArgs(args: readonly string[]): DataPlan {
  const { values, output } = readFlags('data', args, {
    peer: '',
    peers: '',
    only: '',
    flags: '',
    congestion: 'reno',
    rounds: '',
    seconds: '',
    idle: '',
    quick: false,
  });
  const usual = values.quick
    ? { rounds: '1', seconds: '1', idle: '500' }
    : { rounds: '3', seconds: '2', idle: '1000' };
  const kubeProxy = readKubeProxy(values.peer);
  return {
    peers: readPeers(values.peers, kubeProxy),
    kubeProxy,
    loads: readLoads(values.only),
    flags: values.flags.split(' ').filter(Boolean),
    congestion: readCongestion(values.congestion),
    rounds: count('rounds', values.rounds || usual.rounds, 1, 100),
    seconds: count('seconds', values.seconds || usual.seconds, 1, 600),
    // HAProxy is set to have a few more.
    idleConnections: count('idle', values.idle || usual.idle, 0, 5000),
    ...output,
  };
}

/** The program that `--peer kube-proxy=PATH` names. */
export function readKubeProxy(text: string): string | undefined {
  if (text === '') return undefined;
  const [, path] = /^kube-proxy=(.+)$/.exec(text) ?? [];
  if (path !== undefined && existsSync(path)) return resolve(path);
  throw new TypeError(`--peer ${text}: expected kube-proxy=PATH of a program`);
}

const ORDER = [...PEER_WORDS, ...Object.keys(PORTAL_FLAGS)] as readonly PeerWord[];

/** All by default; kube-proxy only where its program is given. */
function readPeers(list: string, kubeProxy: string | undefined): PeerWord[] {
  if (list === '') {
    return PEER_WORDS.filter((word) => word !== 'kube-proxy' || kubeProxy !== undefined);
  }
  const asked = list.split(',');
  for (const word of asked) {
    if (ORDER.some((each) => each === word)) continue;
    throw new TypeError(`--peers ${word}: expected some of ${ORDER.join(', ')}`);
  }
  if (asked.includes('kube-proxy') && kubeProxy === undefined) {
    throw new TypeError('--peers kube-proxy: --peer kube-proxy=PATH has to say where it is');
  }
  return ORDER.filter((word) => asked.includes(word));
}

function readCongestion(name: string): string {
  if (/^[a-z0-9_]+$/.test(name)) return name;
  throw new TypeError(`--congestion ${name}: expected a name such as reno or cubic`);
}

function readLoads(list: string): string[] {
  const words = DATA_LOADS.map(({ word }) => word);
  const found = words.filter((word) => list.split(',').some((part) => word.includes(part)));
  if (found.length > 0) return found;
  throw new TypeError(`--only ${list}: expected a part of some of ${words.join(', ')}`);
}
