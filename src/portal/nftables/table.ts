/** Our table as text: its sets, chains and rules, and scripts for `nft -f -`, each one transaction. */
import type { Protocol } from '../../proxysocket/spec.ts';
import type { Family } from '../../util/family.ts';
import { FAMILIES, type RuleConfig } from '../rules/backend.ts';
import type { Element, ElementChange, Elements } from '../rules/elements.ts';
import {
  block,
  chain,
  dropOutside,
  dropOutsideNodePort,
  HEADER,
  jumps,
  nfproto,
  ofNode,
} from './rule-text.ts';
import { transparentChains } from './transparent-chains.ts';

/**
 * The sets of each family.
 *
 * - `services`: service address, protocol, port -> proxy port; nothing where packets are delivered unchanged
 * - `empty`: the same key; service ports without endpoints, whose clients are refused
 * - `guarded`: the same key; service ports that only some clients may use
 * - `allowed`: the same key and a client network that may use it
 * - `no-local`: the same key; service ports with endpoints on other nodes only, for clients in the cluster
 * - `pods`: the same key and a network of such clients
 * - `node-ports`: protocol, port -> proxy port, or nothing, for addresses of the node
 * - `empty-node-ports`: the same key; node ports without endpoints
 * - `no-local-node-ports`, `node-port-pods`: the same for node ports
 * - `proxy-ports`: protocol, port; where the proxy listens, which clients may not reach directly
 * - `node-networks`: networks of the node addresses with node ports
 *
 * And only where packets are delivered unchanged:
 *
 * - `listeners`: protocol -> port of the socket that all services share
 * - `canary`: the key of `services`, for the canary -> its port
 */
export const KINDS = [
  'services',
  'empty',
  'guarded',
  'allowed',
  'no-local',
  'pods',
  'node-ports',
  'empty-node-ports',
  'no-local-node-ports',
  'node-port-pods',
  'proxy-ports',
  'node-networks',
  'listeners',
  'canary',
] as const;

const TRANSPARENT: ReadonlySet<string> = new Set(['listeners', 'canary']);

export type SetKind = (typeof KINDS)[number];
export type SetName = `${SetKind}${Family}`;

/** All sets, in the order in which they are written. */
export const SET_NAMES: readonly SetName[] = FAMILIES.flatMap((family) =>
  KINDS.map((kind) => setName(kind, family)),
);

export function setName(kind: SetKind, family: Family): SetName {
  return `${kind}${family}`;
}

/** `10.0.0.1 . tcp . 80` */
export function addressKey(address: string, protocol: Protocol, port: number): string {
  // Joined, since the parts of a concatenation would stay in memory.
  return [address, portKey(protocol, port)].join(' . ');
}

/** `tcp . 80` */
export function portKey(protocol: Protocol, port: number): string {
  return `${protocol === 'TCP' ? 'tcp' : 'udp'} . ${port}`;
}

/**
 * Before `dstnat` (-100), the destination is still unchanged; after it, redirected packets have a proxy port, and all
 * others are matched by their destination.
 */
const NAT_PRIORITY = -100;
const REFUSE_PRIORITY = -90;

/** Name of the chain that identifies the table's owner. Empty, and never jumped to. */
export function ownerChain(owner: string): string {
  return `owner-${owner}`;
}

/** The table without elements. Rules are added to those of an existing one. */
export function renderTable(table: string, config: RuleConfig): string {
  const { families, route } = config;
  const blocks = [
    chain(ownerChain(config.owner), []),
    ...families.flatMap((family) => renderSets(config, family)),
    ...families.flatMap((family) => [
      ...(route === undefined ? [destinationChain(config, family)] : []),
      refusalChain(family),
    ]),
    chain('refuse', [
      'meta l4proto tcp reject with tcp reset',
      'reject with icmpx type port-unreachable',
    ]),
    ...(route === undefined ? redirectChains(families) : transparentChains(families, route)),
  ];
  return `table inet ${table} {\n${blocks.join('\n')}}\n`;
}

/** Chains that send the first packet of a connection to a proxy port; connection tracking does so with the others. */
function redirectChains(families: readonly Family[]): string[] {
  return [
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
}

/** Type of the address in a set's key. */
const ADDRESS_TYPE: Record<Family, string> = { 4: 'ipv4_addr', 6: 'ipv6_addr' };

function renderSets(config: RuleConfig, family: Family): string[] {
  const address = ADDRESS_TYPE[family];
  const port = 'inet_proto . inet_service';
  const value = config.route === undefined ? ' : inet_service' : '';
  const types: Record<SetKind, string> = {
    services: `type ${address} . ${port}${value};`,
    empty: `type ${address} . ${port};`,
    guarded: `type ${address} . ${port};`,
    allowed: `type ${address} . ${port} . ${address}; flags interval;`,
    'no-local': `type ${address} . ${port};`,
    pods: `type ${address} . ${port} . ${address}; flags interval;`,
    'node-ports': `type ${port}${value};`,
    'empty-node-ports': `type ${port};`,
    'no-local-node-ports': `type ${port};`,
    'node-port-pods': `type ${port} . ${address}; flags interval;`,
    'proxy-ports': `type ${port};`,
    'node-networks': `type ${address}; flags interval;`,
    listeners: 'type inet_proto : inet_service;',
    canary: `type ${address} . ${port} : inet_service;`,
  };
  const kinds = KINDS.filter((kind) =>
    config.route === undefined ? !TRANSPARENT.has(kind) : kind !== 'proxy-ports',
  );
  return kinds.map((kind) => {
    const word = types[kind].includes(' : ') ? 'map' : 'set';
    return block(`${word} ${setName(kind, family)}`, [types[kind]]);
  });
}

/** All elements, also those that do not depend on services, by set. */
export function elementsBySet(
  { families, nodePortNetworks }: RuleConfig,
  elements: Elements,
): ReadonlyMap<string, readonly Element[]> {
  const sets = new Map(elements.bySet());
  for (const family of families) {
    const set = setName('node-networks', family);
    const networks = nodePortNetworks[family].map((key) => ({ set, key, value: '' }));
    sets.set(set, networks);
  }
  return sets;
}

/** The verdict for the first packet of a connection; connection tracking applies it to later ones. */
function destinationChain({ targets }: RuleConfig, family: Family): string {
  const header = HEADER[family];
  const key = `${header} daddr . meta l4proto . th dport`;
  const target = targets[family];
  const send = target === undefined ? 'redirect to' : `dnat ${header} to ${target}`;
  return chain(`destination${family}`, [
    `${key} @guarded${family} ${key} . ${header} saddr != @allowed${family} drop`,
    dropOutside(family),
    `meta l4proto { tcp, udp } ${send} : ${key} map @services${family}`,
    // A service address takes precedence over node ports on the same address.
    `${key} @empty${family} return`,
    dropOutsideNodePort(family),
    `${ofNode(family)} meta l4proto { tcp, udp } ${send} : meta l4proto . th dport map @node-ports${family}`,
  ]);
}

function refusalChain(family: Family): string {
  const key = `${HEADER[family]} daddr . meta l4proto . th dport`;
  return chain(`refusal${family}`, [
    `${key} @empty${family} goto refuse`,
    `meta l4proto . th dport @empty-node-ports${family} ${ofNode(family)} goto refuse`,
  ]);
}

function directRule(family: Family): string {
  return `meta nfproto ${nfproto(family)} meta l4proto . th dport @proxy-ports${family} goto refuse`;
}

/**
 * Replaces the table, in one transaction. A packet that the old rules look at meanwhile finds their sets empty, and may be
 * refused.
 */
export function renderFull(table: string, config: RuleConfig, elements: Elements): string {
  const text = [renderRemoval(table), renderTable(table, config)];
  const sets = elementsBySet(config, elements);
  for (const set of SET_NAMES) {
    const entries = sets.get(set)?.map(({ key, value }) => entry(key, value));
    text.push(renderElements('add', table, set, entries));
  }
  return text.join('');
}

/**
 * Turns an existing table into ours, in one transaction: its rules are replaced, and elements that stay are not touched, so
 * that every packet finds them. `stale`: chains and sets to remove, as `chain owner-1234`.
 */
export function renderMended(
  table: string,
  config: RuleConfig,
  stale: readonly string[],
  changes: readonly ElementChange[],
): string {
  const removals = stale.map((item) => `delete ${item.replace(' ', ` inet ${table} `)}\n`);
  return [
    `flush table inet ${table}\n`,
    ...removals,
    renderTable(table, config),
    renderChanges(table, changes),
  ].join('');
}

/** Writes the difference. Fails if the table is missing, foreign, or differs from the last write. */
export function renderDelta(
  table: string,
  owner: string,
  changes: readonly ElementChange[],
): string {
  return `flush chain inet ${table} ${ownerChain(owner)}\n${renderChanges(table, changes)}`;
}

/** Removals first: a changed value is a new element. */
function renderChanges(table: string, changes: readonly ElementChange[]): string {
  const bySet = [...Map.groupBy(changes, ({ set }) => set)];
  const removals = bySet.map(([set, some]) => {
    const keys = some.flatMap(({ key, before }) => (before === undefined ? [] : [key]));
    return renderElements('delete', table, set, keys);
  });
  const additions = bySet.map(([set, some]) => {
    const entries = some.flatMap(({ key, after }) =>
      after === undefined ? [] : [entry(key, after)],
    );
    return renderElements('add', table, set, entries);
  });
  return [...removals, ...additions].join('');
}

/** Removes the table; no error when there is none. */
export function renderRemoval(table: string): string {
  return `add table inet ${table}\ndelete table inet ${table}\n`;
}

function renderElements(
  verb: 'add' | 'delete',
  table: string,
  set: string,
  entries: readonly string[] = [],
): string {
  if (entries.length === 0) return '';
  return `${verb} element inet ${table} ${set} {\n${entries.join(',\n')}\n}\n`;
}

function entry(key: string, value: string): string {
  return value === '' ? key : `${key} : ${value}`;
}
