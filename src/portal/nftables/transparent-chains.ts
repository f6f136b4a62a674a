/** Chains that deliver packets unchanged to transparent sockets of this host. */
import type { Family } from '../../util/family.ts';
import type { TransparentRoute } from '../rules/backend.ts';
import {
  branches,
  chain,
  dropOutside,
  dropOutsideNodePort,
  HEADER,
  jumps,
  ofNode,
} from './rule-text.ts';

/**
 * After connection tracking (-200) and before the kernel routes by the mark; before other programs change destinations
 * (-100).
 */
const PRIORITY = -150;
/** Before connection tracking. */
const RAW_PRIORITY = -300;

/** Marks packets from outside; every table of a transparent portal has it. */
export const MARKING_CHAIN = 'transparent-prerouting';

const KERNEL_PORTS = { first: 32_768, last: 60_999 };

/** Where the sockets that all TCP services share are bound. Nothing from outside reaches these addresses directly. */
export const SHARED_ADDRESS: Readonly<Record<Family, string>> = { 4: '127.0.0.1', 6: '::1' };

/** The first packet of a TCP connection, and all others. */
const IS_SYN = 'tcp flags & (syn | ack) == syn';
const IS_NO_SYN = 'tcp flags & (syn | ack) != syn';

/**
 * Prerouting leaves TCP packets to the socket of their connection, or hands them to the shared listening one, and marks
 * them and UDP packets, so that the kernel delivers them here. Packets of the host itself get the mark on their way out,
 * which sends them through prerouting, on the loopback interface.
 *
 * The rules see every packet: most leave at the first rules, without a look into a set.
 */
export function transparentChains(families: readonly Family[], route: TransparentRoute): string[] {
  const bits = `0x${route.mark.toString(16)}`;
  const deliver = `meta mark set meta mark or ${bits} accept`;
  const { first, last } = route.kernelPorts ?? KERNEL_PORTS;
  const ports = `${first}-${last}`;
  const hasNoTracking = route.notrack === true;
  return [
    ...families.flatMap((family) => arrivalChains(family, ports, deliver)),
    ...families.map((family) => departureChain(family, hasNoTracking, bits, deliver)),
    chain(MARKING_CHAIN, [
      `type filter hook prerouting priority ${PRIORITY}; policy accept;`,
      // Without tproxy, the kernel uses the route that it remembers of the connection. It also serves those of service
      // ports that are gone. A SYN with the ports of an old connection is a new one.
      `${IS_NO_SYN} socket transparent 1 ${deliver}`,
      // Connections of other programs, and answers of endpoints. Not listening sockets.
      `${IS_NO_SYN} socket wildcard 0 accept`,
      ...branches(families, 'arrival'),
    ]),
    ...untrackedChains(families, ports, hasNoTracking),
    chain('transparent-output', [
      `type route hook output priority ${PRIORITY}; policy accept;`,
      ...(hasNoTracking ? [] : LEAVING),
      ...branches(families, 'departure'),
    ]),
  ];
}

/**
 * The proxy's packets to clients and endpoints, and those of other programs. Not by the direction alone: it is the opposite
 * one if the tracked connections were flushed. Any mark may be ours from before `--portal-mark` was changed.
 */
const LEAVING: readonly string[] = [
  'ct direction reply socket transparent 1 accept',
  'meta l4proto tcp ct state established ct direction original ct mark 0x0 accept',
];

/** What no connection has a socket for: SYNs, UDP, and TCP connections of a process that has ended. */
function arrivalChains(family: Family, kernelPorts: string, deliver: string): string[] {
  const header = HEADER[family];
  const { key, service, nodePort } = keysOf(family);
  const give = `tproxy ${header} to ${family === 4 ? SHARED_ADDRESS[4] : `[${SHARED_ADDRESS[6]}]`}`;
  const share = `${give} : meta l4proto map @listeners${family} ${deliver}`;
  const guarded = (name: string): string[] =>
    [IS_SYN, 'meta l4proto udp'].map((match) => `${match} jump ${name}${family}`);
  return [
    chain(`guard${family}`, [
      `${key} @guarded${family} ${key} . ${header} saddr != @allowed${family} drop`,
      dropOutside(family),
    ]),
    chain(`guard-others${family}`, [`jump guard${family}`, dropOutsideNodePort(family)]),
    chain(`served${family}`, [
      ...guarded('guard'),
      `iif lo meta l4proto tcp ${give} : ${key} map @canary${family} ${deliver}`,
      `meta l4proto tcp ${share}`,
      `meta l4proto udp ${deliver}`,
      // The process that served it has ended.
      'goto refuse',
    ]),
    chain(`arrival${family}`, [
      `${service} goto served${family}`,
      ...guarded('guard-others'),
      // First, since an address of the node may be a service address, too: then its node ports do not count.
      `jump refusal${family}`,
      `meta l4proto tcp ${nodePort} ${ofNode(family)} ${share}`,
      // Its socket is bound to every address of the host. Firewalls accept the mark.
      `meta l4proto udp ${nodePort} ${ofNode(family)} ${deliver}`,
      `meta l4proto udp ${nodePort} fib daddr type local goto refuse`,
      // Answers of endpoints to the address of a client: not to sockets of service addresses, which may be about to close.
      `udp dport ${kernelPorts} socket transparent 1 socket wildcard 0 ${deliver}`,
    ]),
  ];
}

/** Packets of the host. Connection tracking, if present, recognizes those of removed service ports. */
function departureChain(family: Family, notrack: boolean, bits: string, deliver: string): string {
  const { service } = keysOf(family);
  const isKnown = `meta l4proto tcp ct direction original ct mark and ${bits} == ${bits} ${deliver}`;
  return chain(`departure${family}`, [
    ...(notrack
      ? [`${service} ${deliver}`]
      : [`${service} ct mark set ct mark or ${bits} ${deliver}`, isKnown]),
    `goto refusal${family}`,
  ]);
}

/** Chains before connection tracking that keep packets out of it. */
function untrackedChains(
  families: readonly Family[],
  kernelPorts: string,
  hasNoTracking: boolean,
): string[] {
  const from = (text: string): string =>
    text.replaceAll('daddr', 'saddr').replace('dport', 'sport');
  const unlessService = (family: Family): string => {
    const { key } = keysOf(family);
    return `${key} != @services${family} notrack accept`;
  };
  const hook = (name: 'prerouting' | 'output', rules: readonly string[]): string =>
    chain(`untracked-${name}`, [
      `type filter hook ${name} priority ${RAW_PRIORITY}; policy accept;`,
      ...rules,
    ]);
  const each = (match: (protocol: string) => string): string[] => ['tcp', 'udp'].map(match);
  return [
    ...(hasNoTracking ? families.flatMap(serviceChains) : []),
    chain('answer-to-client', families.map(unlessService)),
    chain('as-client', families.map(unlessService).map(from)),
    hook('prerouting', [
      ...(hasNoTracking ? jumps(families, 'to-service') : []),
      // Answers to the address of a client would be invalid for connection tracking, and dropped by many firewalls.
      ...each(
        (protocol) =>
          `${protocol} dport ${kernelPorts} fib daddr type != local socket transparent 1 socket wildcard 0 goto answer-to-client`,
      ),
    ]),
    hook('output', [
      // No other program masquerades connections to endpoints that have the client's address: they are not tracked.
      // Addresses of other routing domains (VRF) are not local, but their sockets are not transparent. Answers of removed
      // services have other ports.
      ...each(
        (protocol) =>
          `${protocol} sport ${kernelPorts} socket transparent 1 fib saddr type != local jump as-client`,
      ),
      ...(hasNoTracking ? branches(families, 'of-service') : []),
    ]),
  ];

  /** What is sent to services, and what the host sends to them or answers. */
  function serviceChains(family: Family): string[] {
    const { service, nodePort } = keysOf(family);
    const to = [service, `${nodePort} ${ofNode(family)}`];
    const notrack = (match: string): string => `${match} notrack accept`;
    return [
      chain(`to-service${family}`, to.map(notrack)),
      chain(`of-service${family}`, [...to, ...to.map(from)].map(notrack)),
    ];
  }
}

function keysOf(family: Family): Record<'key' | 'service' | 'nodePort', string> {
  const key = `${HEADER[family]} daddr . meta l4proto . th dport`;
  return {
    key,
    service: `${key} @services${family}`,
    nodePort: `meta l4proto . th dport @node-ports${family}`,
  };
}
