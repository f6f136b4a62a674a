/** Chains that deliver packets unchanged to transparent sockets of this host. */
import type { Family } from '../../util/family.ts';
import type { TransparentRoute } from '../rules/backend.ts';
import {
  chain,
  dropOutside,
  dropOutsideNodePort,
  HEADER,
  jumps,
  nfproto,
  ofNode,
} from './rule-text.ts';

/**
 * After connection tracking (-200) and before the kernel routes by the mark; before other programs change destinations
 * (-100).
 */
const PRIORITY = -150;
/** Before connection tracking. */
const RAW_PRIORITY = -300;
/** After that; refused packets have no mark. */
const REFUSE_PRIORITY = -90;

/** Marks packets from outside; every table of a transparent portal has it. */
export const MARKING_CHAIN = 'transparent-prerouting';

const KERNEL_PORTS = { first: 32_768, last: 60_999 };

/** Where the sockets that all TCP services share are bound. Nothing from outside reaches these addresses directly. */
export const SHARED_ADDRESS: Readonly<Record<Family, string>> = { 4: '127.0.0.1', 6: '::1' };

/**
 * Prerouting hands TCP packets to the socket of their connection, or to the shared listening one, and marks them and
 * UDP packets, so that the kernel delivers them here. Packets of the host itself get the mark on their way out, which
 * sends them through prerouting, on the loopback interface.
 */
export function transparentChains(families: readonly Family[], route: TransparentRoute): string[] {
  const bits = `0x${route.mark.toString(16)}`;
  const deliver = `meta mark set meta mark or ${bits} accept`;
  const { first, last } = route.kernelPorts ?? KERNEL_PORTS;
  const isMarked = `meta mark and ${bits} == ${bits} accept`;
  return [
    ...families.flatMap((family) => arrivalChains(family, deliver)),
    ...families.map((family) => departureChain(family, route.notrack === true, bits, deliver)),
    chain(MARKING_CHAIN, [
      `type filter hook prerouting priority ${PRIORITY}; policy accept;`,
      // Most packets. Without tproxy, the kernel uses the route that it remembers of their connection. It also serves those
      // of service ports that are gone. A SYN with the ports of an old connection is a new one.
      `tcp flags & (syn | ack) != syn socket transparent 1 ${deliver}`,
      ...jumps(families, 'arrival'),
      // Answers of endpoints to the address of a client: not to sockets of service addresses, which may be about to close.
      ...families.map(
        (family) => `meta nfproto ${nfproto(family)} meta l4proto udp jump refusal${family}`,
      ),
      `udp dport ${first}-${last} socket transparent 1 socket wildcard 0 ${deliver}`,
      ...jumps(families, 'unserved'),
    ]),
    untracked('prerouting', [
      ...(route.notrack === true ? families.flatMap(untrackedToService) : []),
      ...families.map((family) => answersToClient(family, `${first}-${last}`)),
    ]),
    untracked('output', [
      ...families.map((family) => keepSource(family, `${first}-${last}`)),
      ...(route.notrack === true ? families.flatMap(untrackedOfHost) : []),
    ]),
    chain('transparent-output', [
      `type route hook output priority ${PRIORITY}; policy accept;`,
      ...jumps(families, 'departure'),
    ]),
    ...['prerouting', 'output'].map((hook) =>
      chain(`filter-${hook}`, [
        `type filter hook ${hook} priority ${REFUSE_PRIORITY}; policy accept;`,
        isMarked,
        ...jumps(families, 'refusal'),
      ]),
    ),
  ];
}

function arrivalChains(family: Family, deliver: string): string[] {
  const header = HEADER[family];
  const { key, service, nodePort } = keysOf(family);
  const give = `tproxy ${header} to ${family === 4 ? SHARED_ADDRESS[4] : `[${SHARED_ADDRESS[6]}]`}`;
  const share = `${give} : meta l4proto map @listeners${family} ${deliver}`;
  return [
    chain(`guard${family}`, [
      `${key} @guarded${family} ${key} . ${header} saddr != @allowed${family} drop`,
      dropOutside(family),
      `${service} return`,
      dropOutsideNodePort(family),
    ]),
    chain(`arrival${family}`, [
      `tcp flags & (syn | ack) == syn jump guard${family}`,
      `meta l4proto udp jump guard${family}`,
      `iif lo meta l4proto tcp ${service} ${give} : ${key} map @canary${family} ${deliver}`,
      `meta l4proto tcp ${service} ${share}`,
      `meta l4proto udp ${service} ${deliver}`,
      // An address of the node may be a service address, too: then its node ports do not count.
      `${key} @empty${family} return`,
      `meta l4proto tcp ${nodePort} ${ofNode(family)} ${share}`,
      // Its socket is bound to every address of the host. Firewalls accept the mark.
      `meta l4proto udp ${nodePort} ${ofNode(family)} ${deliver}`,
    ]),
    chain(`unserved${family}`, [
      // The process that served it has ended.
      `meta l4proto tcp ${service} goto refuse`,
      `meta l4proto udp ${nodePort} fib daddr type local goto refuse`,
    ]),
  ];
}

/** Packets of the host. Connection tracking, if present, recognizes those of removed service ports. */
function departureChain(family: Family, notrack: boolean, bits: string, deliver: string): string {
  const { service } = keysOf(family);
  if (notrack) return chain(`departure${family}`, [`${service} ${deliver}`]);
  return chain(`departure${family}`, [
    `${service} ct mark set ct mark or ${bits} ${deliver}`,
    `meta l4proto tcp ct direction original ct mark and ${bits} == ${bits} ${deliver}`,
  ]);
}

/** No other program masquerades connections to endpoints that have the client's address: they are not tracked. */
function keepSource(family: Family, kernelPorts: string): string {
  const key = `${HEADER[family]} saddr . meta l4proto . th sport`;
  // Addresses of other routing domains (VRF) are not local, but their sockets are not transparent. Answers of removed
  // services have other ports.
  const isOurs = `socket transparent 1 ${key} != @services${family} fib saddr type != local`;
  return `meta l4proto { tcp, udp } th sport ${kernelPorts} ${isOurs} notrack`;
}

/** Their answers, which would be invalid for connection tracking, and dropped by many firewalls. */
function answersToClient(family: Family, kernelPorts: string): string {
  const { key } = keysOf(family);
  const isElsewhere = `${key} != @services${family} fib daddr type != local`;
  // First, since answers to the node's own addresses are more frequent.
  const hasSocket = `meta nfproto ${nfproto(family)} socket transparent 1 socket wildcard 0`;
  return `meta l4proto { tcp, udp } th dport ${kernelPorts} ${hasSocket} ${isElsewhere} notrack`;
}

function untracked(hook: 'prerouting' | 'output', rules: readonly string[]): string {
  const type = `type filter hook ${hook} priority ${RAW_PRIORITY}; policy accept;`;
  return chain(`untracked-${hook}`, [type, ...rules]);
}

function untrackedToService(family: Family): string[] {
  const { service, nodePort } = keysOf(family);
  return [`${service} notrack accept`, `${nodePort} ${ofNode(family)} notrack accept`];
}

/** What the host sends to services, and their answers. */
function untrackedOfHost(family: Family): string[] {
  const from = (text: string): string =>
    text.replaceAll('daddr', 'saddr').replace('dport', 'sport');
  const { service, nodePort } = keysOf(family);
  const ofHost = `${nodePort} ${ofNode(family)}`;
  return [service, ofHost, from(service), from(ofHost)].map((match) => `${match} notrack accept`);
}

function keysOf(family: Family): Record<'key' | 'service' | 'nodePort', string> {
  const key = `${HEADER[family]} daddr . meta l4proto . th dport`;
  return {
    key,
    service: `${key} @services${family}`,
    nodePort: `meta l4proto . th dport @node-ports${family}`,
  };
}
