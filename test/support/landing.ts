import { isIPv6 } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { Protocol } from '../../src/proxysocket/spec.ts';
import type { FakeChains, FakeTables } from './fake-iptables.ts';

/** The first packet of a connection. */
export interface Packet {
  /** Where it comes from: another machine, a pod of this node, or the node itself. */
  readonly from: 'outside' | 'pod' | 'host';
  readonly source: string;
  readonly protocol: Protocol;
  readonly destination: string;
  readonly port: number;
}

/**
 * Where a packet ends: at a proxy port, refused (TCP reset, ICMP port unreachable), dropped without a
 * word, or not our business.
 */
export type Landing = `proxy port ${number}` | 'refused' | 'dropped' | 'passed on';

/** Elements by set, as key and value. */
type Sets = ReadonlyMap<string, ReadonlyMap<string, string>>;

/**
 * Sends a packet through the rules of the nftables table in thought. `local` are the addresses of the
 * node besides loopback ones. A system test compares this with the kernel.
 */
export function landing(sets: Sets, packet: Packet, local: ReadonlySet<string>): Landing {
  const { from, source, protocol, destination, port } = packet;
  const family = isIPv6(destination) ? 6 : 4;
  const set = (name: string): ReadonlyMap<string, string> =>
    sets.get(`${name}${family}`) ?? NOTHING;
  const portKey = `${protocol.toLowerCase()} . ${port}`;
  const key = `${destination} . ${portKey}`;
  if (set('guarded').has(key) && !isAllowed(set('allowed'), key, source)) return 'dropped';
  const isOutside = (pods: string, clients: string): boolean =>
    from !== 'host' && !isAllowed(set(pods), clients, source);
  if (set('no-local').has(key) && isOutside('pods', key)) return 'dropped';
  const service = set('services').get(key);
  if (service !== undefined) return `proxy port ${Number(service)}`;
  if (set('empty').has(key)) return 'refused';
  const isLocal = local.has(destination) || ipaddr.parse(destination).range() === 'loopback';
  if (!isLocal) return 'passed on';
  if (contains(set('node-networks').keys(), destination)) {
    if (set('no-local-node-ports').has(portKey) && isOutside('node-port-pods', portKey)) {
      return 'dropped';
    }
    const nodePort = set('node-ports').get(portKey);
    if (nodePort !== undefined) return `proxy port ${Number(nodePort)}`;
    if (set('empty-node-ports').has(portKey)) return 'refused';
  }
  return from !== 'host' && set('proxy-ports').has(portKey) ? 'refused' : 'passed on';
}

const NOTHING: ReadonlyMap<string, string> = new Map();

function isAllowed(allowed: ReadonlyMap<string, string>, key: string, source: string): boolean {
  const networks = [...allowed.keys()]
    .filter((element) => element.startsWith(`${key} . `))
    .map((element) => element.slice(key.length + 3));
  return contains(networks, source);
}

function contains(networks: Iterable<string>, address: string): boolean {
  const parsed = ipaddr.parse(address);
  for (const network of networks) {
    const [start, bits] = ipaddr.parseCIDR(network);
    if (start.kind() === parsed.kind() && parsed.match(start, bits)) return true;
  }
  return false;
}

/** A packet on its way through the chains. */
interface Travelling {
  readonly source: string;
  readonly protocol: string;
  readonly destination: string;
  readonly port: number;
  /** Interface that it came in by, and that it leaves by. */
  readonly from: string | undefined;
  readonly to: string | undefined;
  readonly isLocal: boolean;
  readonly states: ReadonlySet<string>;
}

/** What ends the way through a table's chains; undefined: the end of the chain. */
type Verdict =
  | { readonly kind: 'accept' | 'drop' | 'reject' | 'return' }
  | { readonly kind: 'dnat'; readonly destination: string | undefined; readonly port: number };

/**
 * Sends the first packet of a connection through the rules of iptables in thought: the nat table as it
 * comes in or leaves, and then the filter table where it goes. `local` are the addresses of the node
 * besides loopback ones. A system test compares this with the kernel.
 */
export function iptablesLanding(
  tables: FakeTables,
  packet: Packet,
  local: ReadonlySet<string>,
): Landing {
  const isLocal = (address: string): boolean =>
    local.has(address) || ipaddr.parse(address).range() === 'loopback';
  const nat = tables.get('nat') ?? new Map();
  const filter = tables.get('filter') ?? new Map();
  const ofHost = packet.from === 'host';
  const begin: Travelling = {
    source: packet.source,
    protocol: packet.protocol.toLowerCase(),
    destination: packet.destination,
    port: packet.port,
    from: ofHost ? undefined : 'eth0',
    to: ofHost ? 'eth1' : undefined,
    isLocal: isLocal(packet.destination),
    states: new Set(['NEW']),
  };
  const led = walk(nat, ofHost ? 'OUTPUT' : 'PREROUTING', begin);
  const dnat = led?.kind === 'dnat' ? led : undefined;
  const destination = dnat?.destination ?? packet.destination;
  const now: Travelling = {
    ...begin,
    destination,
    port: dnat?.port ?? packet.port,
    isLocal: isLocal(destination),
    states: new Set(dnat === undefined ? ['NEW'] : ['NEW', 'DNAT']),
  };
  const ways: [string, Travelling][] = [];
  if (ofHost) ways.push(['OUTPUT', { ...now, to: now.isLocal ? 'lo' : 'eth1' }]);
  if (now.isLocal) ways.push(['INPUT', { ...now, from: now.from ?? 'lo', to: undefined }]);
  else if (!ofHost) ways.push(['FORWARD', { ...now, to: 'eth1' }]);
  for (const [chain, each] of ways) {
    const verdict = walk(filter, chain, each)?.kind;
    if (verdict === 'drop') return 'dropped';
    if (verdict === 'reject') return 'refused';
  }
  return dnat === undefined ? 'passed on' : `proxy port ${dnat.port}`;
}

function walk(chains: FakeChains, chain: string, packet: Travelling): Verdict | undefined {
  for (const rule of chains.get(chain) ?? []) {
    const words = wordsOf(rule);
    if (!matches(words, packet)) continue;
    const verdict = verdictOf(words);
    if (verdict === undefined) {
      const after = walk(chains, valueOf(words, '-j') ?? '', packet);
      if (after !== undefined) return after;
    } else if (verdict.kind === 'return') return undefined;
    else return verdict;
  }
  return undefined;
}

/** Undefined for a jump to another chain. */
function verdictOf(words: readonly string[]): Verdict | undefined {
  switch (valueOf(words, '-j') ?? '') {
    case 'ACCEPT':
      return { kind: 'accept' };
    case 'DROP':
      return { kind: 'drop' };
    case 'REJECT':
      return { kind: 'reject' };
    case 'RETURN':
      return { kind: 'return' };
    case 'REDIRECT':
      return { kind: 'dnat', destination: undefined, port: Number(valueOf(words, '--to-ports')) };
    case 'DNAT': {
      const to = valueOf(words, '--to-destination') ?? '';
      const at = to.lastIndexOf(':');
      const destination = to.slice(0, at).replaceAll(/[[\]]/g, '');
      return { kind: 'dnat', destination, port: Number(to.slice(at + 1)) };
    }
    default:
      return undefined;
  }
}

function matches(words: readonly string[], packet: Travelling): boolean {
  for (const [index, word] of words.entries()) {
    const test = TESTS[word];
    if (test === undefined) continue;
    const isWanted = words[index - 1] !== '!';
    if (test(words[index + 1] ?? '', packet) !== isWanted) return false;
  }
  return true;
}

const TESTS: Readonly<Record<string, (value: string, packet: Travelling) => boolean>> = {
  '-p': (value, { protocol }) => value === protocol,
  '-d': (value, { destination }) => isIn(value, destination),
  '-s': (value, { source }) => isIn(value, source),
  '-i': (value, { from }) => value === from,
  '-o': (value, { to }) => value === to,
  '--dport': (value, { port }) => Number(value) === port,
  '--dst-type': (value, { isLocal }) => value === 'LOCAL' && isLocal,
  '--ctstate': (value, { states }) => value.split(',').some((state) => states.has(state)),
  '--state': (value, { states }) => value.split(',').some((state) => states.has(state)),
};

function isIn(network: string, address: string): boolean {
  const [start, bits] = ipaddr.parseCIDR(network);
  const parsed = ipaddr.parse(address);
  return start.kind() === parsed.kind() && parsed.match(start, bits);
}

function valueOf(words: readonly string[], option: string): string | undefined {
  const at = words.indexOf(option);
  return at === -1 ? undefined : words[at + 1];
}

/** Comments are one word, and none that is looked at. */
function wordsOf(rule: string): string[] {
  return rule.replaceAll(/"[^"]*"/g, 'text').split(' ');
}
