/** Parts of rules and chains as text. */
import type { Family } from '../../util/family.ts';

/** Prefix of header expressions; it limits a rule to the family. */
export const HEADER: Record<Family, string> = { 4: 'ip', 6: 'ip6' };

/** Rules that jump to the chain of the packet's family. */
export function jumps(families: readonly Family[], name: string): string[] {
  return families.map((family) => `meta nfproto ${nfproto(family)} jump ${name}${family}`);
}

/** The same for a chain that ends the evaluation. */
export function branches(families: readonly Family[], name: string): string[] {
  return families.map((family) => `meta nfproto ${nfproto(family)} goto ${name}${family}`);
}

export function nfproto(family: Family): string {
  return family === 4 ? 'ipv4' : 'ipv6';
}

/** Matches packets to an address of the node that has node ports. */
export function ofNode(family: Family): string {
  return `${HEADER[family]} daddr @node-networks${family} fib daddr type local`;
}

export function chain(name: string, rules: readonly string[]): string {
  return block(`chain ${name}`, rules);
}

export function block(head: string, lines: readonly string[]): string {
  return `\t${head} {\n${lines.map((line) => `\t\t${line}\n`).join('')}\t}\n`;
}

/**
 * Drops packets from outside the cluster to a service address with endpoints on other nodes only: without any answer,
 * clients and load balancers retry there.
 */
export function dropOutside(family: Family): string {
  const key = `${HEADER[family]} daddr . meta l4proto . th dport`;
  return `${key} @no-local${family} ${fromOutside(family, key, 'pods')} drop`;
}

/** The same for node ports. */
export function dropOutsideNodePort(family: Family): string {
  const match = `meta l4proto . th dport @no-local-node-ports${family} ${ofNode(family)}`;
  return `${match} ${fromOutside(family, 'meta l4proto . th dport', 'node-port-pods')} drop`;
}

function fromOutside(family: Family, key: string, pods: string): string {
  return `${key} . ${HEADER[family]} saddr != @${pods}${family} fib saddr type != local`;
}
