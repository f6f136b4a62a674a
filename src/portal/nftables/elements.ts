/** The named sets and maps of our table, and what is in them. */
import type { Protocol } from '../../proxysocket/spec.ts';
import type { Family } from '../../util/family.ts';

export const FAMILIES: readonly Family[] = [4, 6];

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

/** One entry of a set or map, in nft's spelling. */
export interface Element {
  readonly set: SetName;
  readonly key: string;
  /** The proxy port of a map's element; empty for an element of a set. */
  readonly value: string;
}

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

/** A key taken apart again: the address is undefined for a node port. */
export function readKey(key: string): {
  address: string | undefined;
  protocol: Protocol;
  port: number;
} {
  const parts = key.split(' . ');
  const address = parts.length > 2 ? parts.shift() : undefined;
  return { address, protocol: parts[0] === 'tcp' ? 'TCP' : 'UDP', port: Number(parts[1]) };
}
