/** Parts of rules and chains as text. */
import type { Family } from '../../util/family.ts';

/** Prefix of header expressions; it limits a rule to the family. */
export const HEADER: Record<Family, string> = { 4: 'ip', 6: 'ip6' };

export function jumps(families: readonly Family[], name: string): string[] {
  return families.map((family) => `meta nfproto ${nfproto(family)} jump ${name}${family}`);
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
  return outside(family, `${HEADER[family]} daddr . meta l4proto . th dport`, 'no-local', 'pods');
}

/** The same for node ports. */
export function dropOutsideNodePort(family: Family): string {
  const rule = outside(family, 'meta l4proto . th dport', 'no-local-node-ports', 'node-port-pods');
  return `${ofNode(family)} ${rule}`;
}

function outside(family: Family, key: string, noLocal: string, pods: string): string {
  const isPod = `${key} . ${HEADER[family]} saddr != @${pods}${family}`;
  return `${key} @${noLocal}${family} ${isPod} fib saddr type != local drop`;
}
