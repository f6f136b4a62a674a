/** Chains as text that both address families share. */
import type { Family } from '../../util/family.ts';

/** Prefix of header expressions; it limits a rule to the family. */
export const HEADER: Readonly<Record<Family, string>> = { 4: 'ip', 6: 'ip6' };

/** What stands in a text for a part that depends on the family. */
export type Words = Readonly<Record<string, Readonly<Record<Family, string>>>>;

/** `#` ends the names of chains and sets that each family has. */
const WORDS: Words = {
  '#': { 4: '4', 6: '6' },
  IP: HEADER,
  LOOPBACK: { 4: '127.0.0.1', 6: '[::1]' },
};

/** The destination of a packet, as a key of service addresses and of node ports. */
export const TO_SERVICE = 'IP daddr . meta l4proto . th dport';
export const TO_NODE_PORT = 'meta l4proto . th dport';

/** Matches packets to an address of the node that has node ports. */
export const OF_NODE = 'IP daddr @node-networks# fib daddr type local';

/** Drops packets of clients that a service address does not allow. */
export const DROP_OTHERS = `${TO_SERVICE} @guarded# ${TO_SERVICE} . IP saddr != @allowed# drop`;

/**
 * Drops packets from outside the cluster to a service address with endpoints on other nodes only: without any answer,
 * clients and load balancers retry there.
 */
export const DROP_OUTSIDE = `${TO_SERVICE} @no-local# ${TO_SERVICE} . IP saddr != @pods# fib saddr type != local drop`;

/** The same for node ports. */
export const DROP_OUTSIDE_NODE_PORT =
  `${TO_NODE_PORT} @no-local-node-ports# ${OF_NODE} ` +
  `${TO_NODE_PORT} . IP saddr != @node-port-pods# fib saddr type != local drop`;

/** Hands a packet to the chain of its family: `each('jump refusal')`. */
export function each(verdict: string): string {
  return `meta nfproto ipv# ${verdict}#`;
}

/** The first line of a chain that the kernel calls. */
export function hooked(type: string, hook: string, priority: number): string {
  return `type ${type} hook ${hook} priority ${priority}; policy accept;`;
}

/**
 * The chains of a text: a name, and indented rules in order; `//` begins a comment. Chains whose name has a `#`, and such
 * rules of the others, are repeated for each family.
 */
export function renderChains(
  families: readonly Family[],
  text: string,
  more: Words = {},
): string[] {
  const words = Object.entries({ ...WORDS, ...more });
  const expand = (part: string): string[] => {
    if (!part.includes('#')) return [part];
    return families.map((family) =>
      words.reduce((rest, [word, by]) => rest.replaceAll(word, by[family]), part),
    );
  };
  return text.split(/\n(?=\S)/).flatMap((part) => {
    const lines = part.split('\n').map((line) => line.trim());
    const [name, ...rules] = lines.filter((line) => line !== '' && !line.startsWith('//'));
    if (name === undefined) return [];
    if (name.includes('#')) return expand(block(`chain ${name}`, rules));
    return [block(`chain ${name}`, rules.flatMap(expand))];
  });
}

export function block(head: string, lines: readonly string[]): string {
  return `\t${head} {\n${lines.map((line) => `\t\t${line}\n`).join('')}\t}\n`;
}
