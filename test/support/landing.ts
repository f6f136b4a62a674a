import { isIPv6 } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { Protocol } from '../../src/proxysocket/spec.ts';

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
