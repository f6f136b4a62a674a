/** The part of our table that does not depend on the services: sets, chains and rules, as text. */
import type { Family } from '../../util/family.ts';
import type { RuleConfig } from '../rules/config.ts';
import { KINDS, setName, type SetKind } from './elements.ts';

/**
 * Before the `dstnat` priority (-100) nobody has changed the destination yet; after it, a packet that
 * the maps know has been sent to a proxy port, and the rest can be judged by where it still goes.
 */
const NAT_PRIORITY = -100;
const REFUSE_PRIORITY = -90;

/** Name of the chain that says whose table it is. Empty, and never jumped to. */
export function ownerChain(owner: string): string {
  return `owner-${owner}`;
}

/** The table with everything but the elements of the services. */
export function renderTable(table: string, config: RuleConfig): string {
  const { families } = config;
  const blocks = [
    chain(ownerChain(config.owner), []),
    ...families.flatMap((family) => renderSets(config, family)),
    ...families.flatMap((family) => [destinationChain(config, family), refusalChain(family)]),
    chain('refuse', [
      'meta l4proto tcp reject with tcp reset',
      'reject with icmpx type port-unreachable',
    ]),
    chain('direct', families.map(directRule)),
    chain('nat-prerouting', [
      `type nat hook prerouting priority ${NAT_PRIORITY}; policy accept;`,
      ...jumps(families, 'destination'),
    ]),
    chain('nat-output', [
      `type nat hook output priority ${NAT_PRIORITY}; policy accept;`,
      ...jumps(families, 'destination'),
    ]),
    chain('filter-prerouting', [
      `type filter hook prerouting priority ${REFUSE_PRIORITY}; policy accept;`,
      'ct state != new accept',
      'ct status dnat accept',
      ...jumps(families, 'refusal'),
      'iif != lo fib daddr type local jump direct',
    ]),
    chain('filter-output', [
      `type filter hook output priority ${REFUSE_PRIORITY}; policy accept;`,
      'ct state != new accept',
      'ct status dnat accept',
      ...jumps(families, 'refusal'),
    ]),
  ];
  return `table inet ${table} {\n${blocks.join('\n')}}\n`;
}

/** Type of the address in a set's key. */
const ADDRESS_TYPE: Record<Family, string> = { 4: 'ipv4_addr', 6: 'ipv6_addr' };
/** Prefix of expressions that look into a packet; it limits a rule to the family. */
const HEADER: Record<Family, string> = { 4: 'ip', 6: 'ip6' };

function renderSets(config: RuleConfig, family: Family): string[] {
  const address = ADDRESS_TYPE[family];
  const port = 'inet_proto . inet_service';
  const types: Record<SetKind, string> = {
    services: `type ${address} . ${port} : inet_service;`,
    empty: `type ${address} . ${port};`,
    guarded: `type ${address} . ${port};`,
    allowed: `type ${address} . ${port} . ${address}; flags interval;`,
    'node-ports': `type ${port} : inet_service;`,
    'empty-node-ports': `type ${port};`,
    'proxy-ports': `type ${port};`,
  };
  const sets = KINDS.map((kind) => {
    const word = kind === 'services' || kind === 'node-ports' ? 'map' : 'set';
    return block(`${word} ${setName(kind, family)}`, [types[kind]]);
  });
  const networks = config.nodePortNetworks[family];
  const elements = networks.length === 0 ? [] : [`elements = { ${networks.join(', ')} }`];
  sets.push(block(`set node-networks${family}`, [`type ${address}; flags interval;`, ...elements]));
  return sets;
}

/**
 * Where the first packet of a connection goes. Every later one follows what connection tracking
 * remembers, so this is not on the path of established traffic.
 */
function destinationChain({ targets }: RuleConfig, family: Family): string {
  const header = HEADER[family];
  const key = `${header} daddr . meta l4proto . th dport`;
  const target = targets[family];
  const send = target === undefined ? 'redirect to' : `dnat ${header} to ${target}`;
  return chain(`destination${family}`, [
    `${key} @guarded${family} ${key} . ${header} saddr != @allowed${family} drop`,
    `meta l4proto { tcp, udp } ${send} : ${key} map @services${family}`,
    // An address of the node may be a service address, too: then its node ports do not count.
    `${key} @empty${family} return`,
    `${ofNode(family)} meta l4proto { tcp, udp } ${send} : meta l4proto . th dport map @node-ports${family}`,
  ]);
}

function refusalChain(family: Family): string {
  const key = `${HEADER[family]} daddr . meta l4proto . th dport`;
  return chain(`refusal${family}`, [
    `${key} @empty${family} goto refuse`,
    `${ofNode(family)} meta l4proto . th dport @empty-node-ports${family} goto refuse`,
  ]);
}

function directRule(family: Family): string {
  return `meta nfproto ${nfproto(family)} meta l4proto . th dport @proxy-ports${family} goto refuse`;
}

/** Matches packets to an address of the node that has node ports. */
function ofNode(family: Family): string {
  return `${HEADER[family]} daddr @node-networks${family} fib daddr type local`;
}

function jumps(families: readonly Family[], name: string): string[] {
  return families.map((family) => `meta nfproto ${nfproto(family)} jump ${name}${family}`);
}

function nfproto(family: Family): string {
  return family === 4 ? 'ipv4' : 'ipv6';
}

function chain(name: string, rules: readonly string[]): string {
  return block(`chain ${name}`, rules);
}

function block(head: string, lines: readonly string[]): string {
  return `\t${head} {\n${lines.map((line) => `\t\t${line}\n`).join('')}\t}\n`;
}
