/** The named sets and maps of our table, and what is in them. */
import type { Protocol } from '../../proxysocket/spec.ts';
import type { Family } from '../../util/family.ts';
import { FAMILIES } from '../rules/config.ts';
import type { Item } from '../rules/ledger.ts';

/**
 * What there is of each family.
 *
 * - `services`: service address, protocol, port -> proxy port
 * - `empty`: the same key; service ports without endpoints, whose clients are refused
 * - `guarded`: the same key; service ports that only some clients may use
 * - `allowed`: the same key and a client network that may use it
 * - `node-ports`: protocol, port -> proxy port, for addresses of the node
 * - `empty-node-ports`: the same key; node ports without endpoints
 * - `proxy-ports`: protocol, port; where the proxy listens, which nobody may reach directly
 */
export const KINDS = [
  'services',
  'empty',
  'guarded',
  'allowed',
  'node-ports',
  'empty-node-ports',
  'proxy-ports',
] as const;

export type SetKind = (typeof KINDS)[number];
export type SetName = `${SetKind}${Family}`;

/** All sets that change with the services, in the order in which they are written. */
export const SET_NAMES: readonly SetName[] = FAMILIES.flatMap((family) =>
  KINDS.map((kind) => setName(kind, family)),
);

/** One entry of a set or map, in nft's spelling: with the proxy port of a map's element as its value. */
export type Element = Item<SetName>;

export function setName(kind: SetKind, family: Family): SetName {
  return `${kind}${family}`;
}

/** `10.0.0.1 . tcp . 80` */
export function addressKey(address: string, protocol: Protocol, port: number): string {
  return `${address} . ${portKey(protocol, port)}`;
}

/** `tcp . 80` */
export function portKey(protocol: Protocol, port: number): string {
  return `${protocol === 'TCP' ? 'tcp' : 'udp'} . ${port}`;
}
