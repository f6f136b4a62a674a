/** Chains as text that both address families share, and those that deliver packets unchanged to transparent sockets. */
import type { Family } from '../../util/family.ts';
import type { TransparentRoute } from '../rules/backend.ts';

/** Prefix of header expressions; it limits a rule to the family. */
export const HEADER: Readonly<Record<Family, string>> = { 4: 'ip', 6: 'ip6' };

/** What stands in a text for a part that depends on the family. */
type Words = Readonly<Record<string, Readonly<Record<Family, string>>>>;

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

/**
 * After connection tracking (-200) and before the kernel routes by the mark; before other programs change destinations
 * (-100).
 */
const PRIORITY = -150;
/** Before connection tracking. */
const RAW_PRIORITY = -300;

/** Before the kernel's own hook of this priority, if that was there when the chain was added. */
const FIRST_PRIORITY = -(2 ** 31);

/**
 * With `bridge-nf-call-iptables`, packets pass the rules on their bridge. On their way up, the kernel forgets their socket
 * and skips all chains after its own first one. They still have the mark.
 */
export const BRIDGED_CHAIN = 'bridged-prerouting';

/** Marks packets from outside; every table of a transparent portal has it. */
export const MARKING_CHAIN = 'transparent-prerouting';

const KERNEL_PORTS = { first: 32_768, last: 60_999 };

/** The first packet of a TCP connection, and all others. */
const IS_SYN = 'tcp flags & (syn | ack) == syn';
const IS_NO_SYN = 'tcp flags & (syn | ack) != syn';

const IS_SERVICE = `${TO_SERVICE} @services#`;
const IS_NODE_PORT = `${TO_NODE_PORT} @node-ports#`;

/**
 * The proxy's packets to clients and endpoints, and those of other programs. Not by the direction alone: it is the opposite
 * one if the tracked connections were flushed. Any mark may be ours from before `--portal-mark` was changed.
 */
const LEAVING = `
  ct direction reply socket transparent 1 accept
  meta l4proto tcp ct state established ct direction original ct mark 0x0 accept`;

/**
 * Prerouting leaves TCP packets to the socket of their connection, or hands them to the shared listening one, and marks
 * them and UDP packets, so that the kernel delivers them here. Packets of the host itself get the mark on their way out,
 * which sends them through prerouting, on the loopback interface.
 *
 * The rules see every packet: most leave at the first rules, without a look into a set.
 */
export function transparentChains(route: TransparentRoute): string {
  const bits = `0x${route.mark.toString(16)}`;
  const deliver = `meta mark set meta mark or ${bits} accept`;
  const toShared = 'tproxy IP to LOOPBACK : meta l4proto map @listeners#';
  const share = `${toShared} ${deliver}`;
  const tracked = (text: string): string => (route.notrack === true ? '' : text);
  return `
guard#
  ${DROP_OTHERS}
  ${DROP_OUTSIDE}
guard-others#
  jump guard#
  ${DROP_OUTSIDE_NODE_PORT}
served#
  ${IS_SYN} jump guard#
  meta l4proto udp jump guard#
  iif lo meta l4proto tcp tproxy IP to LOOPBACK : ${TO_SERVICE} map @canary# ${deliver}
  meta l4proto tcp ${share}
  meta l4proto udp ${deliver}
  // The process that served it has ended.
  goto refuse
// What no connection has a socket for: SYNs, UDP, and TCP connections of a process that has ended.
arrival#
  ${IS_SERVICE} goto served#
  ${IS_SYN} jump guard-others#
  meta l4proto udp jump guard-others#
  // First, since an address of the node may be a service address, too: then its node ports do not count.
  jump refusal#
  meta l4proto tcp ${IS_NODE_PORT} ${OF_NODE} ${share}
  // Its socket is bound to every address of the host. Firewalls accept the mark.
  meta l4proto udp ${IS_NODE_PORT} ${OF_NODE} ${deliver}
  meta l4proto udp ${IS_NODE_PORT} fib daddr type local goto refuse
  // Answers of endpoints to the address of a client: not to sockets of service addresses, which may be about to close.
  udp dport ${kernelPorts(route)} socket transparent 1 socket wildcard 0 ${deliver}
// Connection tracking, if present, recognizes packets of the host to removed service ports.
departure#
  ${IS_SERVICE} ${tracked(`ct mark set ct mark or ${bits} `)}${deliver}
  ${tracked(`meta l4proto tcp ct direction original ct mark and ${bits} == ${bits} ${deliver}`)}
  goto refusal#
${MARKING_CHAIN}
  ${hooked('filter', 'prerouting', PRIORITY)}
  // Without tproxy, the kernel uses the route that it remembers of the connection. It also serves those of service
  // ports that are gone. A SYN with the ports of an old connection is a new one.
  ${IS_NO_SYN} socket transparent 1 ${deliver}
  // Connections of other programs, and answers of endpoints. Not listening sockets.
  ${IS_NO_SYN} socket wildcard 0 accept
  meta nfproto ipv# goto arrival#
// As in arrival, but without checks: these packets have passed them on their bridge.
bridged#
  meta l4proto tcp ${IS_SERVICE} ${toShared}
  meta l4proto tcp ${IS_NODE_PORT} ${OF_NODE} ${toShared}
${BRIDGED_CHAIN}
  ${hooked('filter', 'prerouting', FIRST_PRIORITY)}
  iif lo accept
  meta mark and ${bits} != ${bits} accept
  // Not only SYNs: with SYN cookies, a connection has no socket before its second packet.
  ${IS_NO_SYN} socket wildcard 0 accept
  meta nfproto ipv# goto bridged#
${untrackedChains(route)}
transparent-output
  ${hooked('route', 'output', PRIORITY)}
  ${tracked(LEAVING)}
  meta nfproto ipv# goto departure#
`;
}

/** Chains before connection tracking that keep packets out of it. */
function untrackedChains(route: TransparentRoute): string {
  const ports = kernelPorts(route);
  const from = (text: string): string =>
    text.replaceAll('daddr', 'saddr').replace('dport', 'sport');
  const unlessService = `${TO_SERVICE} != @services# notrack accept`;
  const toService = `${IS_SERVICE} notrack accept`;
  const toNodePort = `${IS_NODE_PORT} ${OF_NODE} notrack accept`;
  const untracked = (text: string): string => (route.notrack === true ? text : '');
  const services = `
// What is sent to services, and what the host sends to them or answers.
to-service#
  ${toService}
  ${toNodePort}
of-service#
  ${toService}
  ${toNodePort}
  ${from(toService)}
  ${from(toNodePort)}
`;
  const toClient = `fib daddr type != local socket transparent 1 socket wildcard 0 goto answer-to-client`;
  const asClient = `socket transparent 1 fib saddr type != local jump as-client`;
  return `
${untracked(services)}
answer-to-client
  ${unlessService}
as-client
  ${from(unlessService)}
untracked-prerouting
  ${hooked('filter', 'prerouting', RAW_PRIORITY)}
  ${untracked('meta nfproto ipv# jump to-service#')}
  // Answers to the address of a client would be invalid for connection tracking, and dropped by many firewalls.
  tcp dport ${ports} ${toClient}
  udp dport ${ports} ${toClient}
untracked-output
  ${hooked('filter', 'output', RAW_PRIORITY)}
  // No other program masquerades connections to endpoints that have the client's address: they are not tracked.
  // Addresses of other routing domains (VRF) are not local, but their sockets are not transparent. Answers of removed
  // services have other ports.
  tcp sport ${ports} ${asClient}
  udp sport ${ports} ${asClient}
  ${untracked('meta nfproto ipv# goto of-service#')}
`;
}

function kernelPorts({ kernelPorts: ports = KERNEL_PORTS }: TransparentRoute): string {
  return `${ports.first}-${ports.last}`;
}
